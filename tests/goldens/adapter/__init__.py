"""The one place that names modules, settings and fields: it runs a whole small study and tells what came out of it.

Everything is the service's own code in one process: the coordinator's use cases on SQLite, the hospitals' training,
accounts and halves of the secure sum. Only the randomness is seeded. What it returns is in the goldens' own words, so
that a renaming changes this folder and nothing recorded.

settings  from choices to a study's settings and records
bench     the process: database, coordinators, one thread
study     a study from its creation to its end
words     from the wire's names to the goldens'
"""

from tests.goldens.adapter.bench import Bench
from tests.goldens.adapter.settings import NoStudy, settings_of

__all__ = ["Bench", "NoStudy", "settings_of"]
