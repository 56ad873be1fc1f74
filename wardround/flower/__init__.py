"""A kept privacy budget for Flower's runs and for other training that is not a study. The extra is `flower`.

RunLedger is the ledger: a file that counts every release of every run, and refuses the one that would overspend.
LedgerAccountant gives it to Flower's own strategies as their privacy accountant. KeptRounds puts it around any strategy
whose noise the hospitals add, by RoundTerms. HospitalMod adds that noise at a hospital, keeps the hospital's own ledger
and refuses by its site policy. PatientTraining says what a hospital's own private training costs its patients.
"""

from wardround.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
