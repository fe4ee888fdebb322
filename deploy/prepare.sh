#!/bin/sh
# Keys, certificates and a signed agreement for a rehearsal, in FOLDER/NAME for each party; needs `coterie` on the PATH.
#   sh deploy/prepare.sh FOLDER [PLAN]
# In earnest nobody holds all of this: docs/deploy.md, from "Keys" on.
set -eu
umask 077
folder=${1:?folder for everybody}
plan=$(realpath "${2:-$(dirname "$0")/three.toml}")
mkdir -p "$folder/certificates"
cd "$folder"
coterie keys init rehearsal --ca --dir authority
for name in $(sed -n '/^\[\[deploy.parties\]\]/,$ s/^name = "\(.*\)"$/\1/p' "$plan"); do
    mkdir -p "$name"
    coterie keys init "$name" --dir "$name/keys"
    coterie keys request "$name" --dir "$name/keys" --out "$name.request.json"
    coterie keys sign "$name.request.json" --ca authority --days 30 --out "certificates/$name.pem"
    coterie keys install "$name" "certificates/$name.pem" --ca authority/ca.json --dir "$name/keys"
    rm "$name.request.json"
done
coterie plan sign "$plan" --ca authority --certs certificates --days 30 --out agreement.json
for name in certificates/*.pem; do
    cp agreement.json "$(basename "$name" .pem)/agreement.json"
done
