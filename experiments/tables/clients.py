"""Tables I, II and IV: MNIST, clients protected by central noise."""

from __future__ import annotations

from experiments.tables.catalogue import Entry

ENTRIES: tuple[Entry, ...] = ()
