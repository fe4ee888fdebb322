"""The number that parties of an agreement must have in common; the version of the package may differ between them.

It goes up with every change after which two parties would not understand each other, or would not compute the same from
the same agreement: the bytes of frames and greetings, the meaning of a plan's key or of one that it leaves out, how
noise, grid and price follow from the plan, what an algorithm makes of the messages. tests/deploy/test_protocol.py holds
such numbers of every deployable algorithm, and fails where they change and this one does not.

A release without such a change keeps the number, and a party may install it in the middle of an agreement: what was
released is in its ledger, byte for byte, and is never computed again.
"""

PROTOCOL = 3
