from wardround.flower.accountant import LedgerAccountant as LedgerAccountant
from wardround.flower.mod import HospitalMod as HospitalMod
from wardround.flower.round_terms import PatientTraining as PatientTraining
from wardround.flower.round_terms import RoundTerms as RoundTerms
from wardround.flower.run_ledger import RunLedger as RunLedger
from wardround.flower.strategy import KeptRounds as KeptRounds
