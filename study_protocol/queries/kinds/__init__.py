"""Every kind of question. A new one is a file here and a name in `Question`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from study_protocol.queries.kinds.count import Count
from study_protocol.queries.kinds.covariance import Covariance
from study_protocol.queries.kinds.distances import Distances
from study_protocol.queries.kinds.evaluation import Evaluation
from study_protocol.queries.kinds.glm import GeneralisedLinear
from study_protocol.queries.kinds.linear_regression import LinearRegression
from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.queries.kinds.moments import Moments
from study_protocol.queries.kinds.quantiles import Quantiles
from study_protocol.queries.kinds.sites import Sites
from study_protocol.queries.kinds.survival import Survival
from study_protocol.queries.kinds.table import ContingencyTable
from study_protocol.queries.kinds.tables import Tables

Question = Annotated[
    Count
    | Covariance
    | Distances
    | Evaluation
    | GeneralisedLinear
    | LinearRegression
    | Marginals
    | Moments
    | Quantiles
    | Sites
    | Survival
    | ContingencyTable
    | Tables,
    Field(discriminator="kind"),
]
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)
