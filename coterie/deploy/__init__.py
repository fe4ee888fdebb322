"""Deployment: the plan that was simulated, between organisations, one process per party and no server.

`keys` (who is who), `agreement` (what all have signed up to), `frames` (the bytes that travel), `hello`, `transport`
and `courier` (how they travel, whatever the wire), `grpc_transport` (the wire: mutual TLS). What leaves a party is in
`frames`; who can get it is in `grpc_transport`. `hall`, `door` and `host` say how callers are let in. `calls` are the
connections themselves, over which `courier` takes frames to neighbours, or `post` takes packets to anybody (`routes`).
"""
