"""Names of people in one form: two ways of writing one name are one person.

A person who is taken for two is protected half as well as is said, while two who are taken for one lose nothing. So 7,
7.0, "7" and " 7.0" are one name, and so are the ways in which Unicode writes one text.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from coterie.errors import InputError

__all__ = ["person_names"]

_WHOLE = re.compile(r"([+-]?\d+)\.0*")


def person_names(ids: object, where: str) -> np.ndarray:
    """Whose each record is, as text in one form; an InputError that says `where` if a record is nobody's.

    >>> person_names(np.array([" 7.0", 7, "é", "e\\u0301"], object), "here").tolist()
    ['7', '7', 'é', 'é']
    """
    array = np.asarray(ids)
    if array.dtype == object:
        names = np.array([_name(value) for value in array.tolist()], dtype=str)
    else:
        different, which = np.unique(array, return_inverse=True)
        names = np.array([_name(value) for value in different.tolist()], dtype=str)[which.reshape(-1)]
    if gaps := int(np.sum(names == "")):
        raise InputError(f"{where}: people must name a person for every record, and {gaps} are missing")
    return names


def _name(value: object) -> str:
    """Empty for a gap, however a library writes it."""
    if not isinstance(value, str) and (value is None or str(value) in ("nan", "NaT", "<NA>")):
        return ""
    text = unicodedata.normalize("NFKC", str(value)).strip()
    whole = _WHOLE.fullmatch(text)
    return text if whole is None else whole[1]
