"""Questions about patients and their answers, for statisticians. Needs the extras `operator` and `frames`.

`Client.ask` sends a question to all hospitals of a study. The question is a dictionary, a file or a QueryDocument. The
result is an Answered: its tables as pandas data frames, after its signature was verified. QueryFailed says why a query
has no answer. QueryNotAnswered says that the answer is not there yet.
"""

from wardround.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
