"""Private training, tasks and records, for researchers and data scientists. Needs the extra `learning`.

Private training
    PerRecordGradients clips the gradient of each record and returns their ClippedSum. poisson_batch draws a batch, and
    Slots fix how many records it can have. add_noise returns a NoisySum. SecureSource is the randomness of real
    training. SecureRandomness and SeededRandomness give randomness by party, round, step and Purpose. NonFiniteError
    and UnsupportedLayer say why a model is refused.

Bayesian models
    fit_posterior fits a logistic regression without noise and returns a PosteriorFit. draw_posterior draws weights
    around it as a PosteriorPlan says. posterior_probabilities predicts with the draws. gradient_norms gives what
    `wardround.accounting.fit_distance` needs to bound the effect of one record.

Tasks
    Task and Classification are the bases of your own tasks. A task returns a TaskDataset or raises TaskError. load_task
    builds a task by its name, and task_names lists the names. ProgramFile is a backbone that is a program.

Records
    load_records reads a file or folder by its name, or a data frame. read_csv, read_parquet, read_npz, read_idx,
    read_images, read_heart_disease, read_histories, list_dicom, list_nifti and list_table read one kind of file.
    records_of takes what is in memory. All return Records: a Table, Examples, Histories, a LazyTable or LazyExamples.
    A Reader reads the inputs of the lazy ones when they are needed. propose_format finds out how a text table is
    written and returns a Proposal with ColumnForms. TableFormat declares it. DataError says which record cannot be
    read, and one_per_patient which rows belong to one patient.
"""

from wardround.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
