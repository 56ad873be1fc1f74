"""Every kind of question. A new one is a file here and a name in `Question`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from client_sdk.protocol.statistics.kinds.count import Count
from client_sdk.protocol.statistics.kinds.covariance import Covariance
from client_sdk.protocol.statistics.kinds.evaluation import Evaluation
from client_sdk.protocol.statistics.kinds.linear_regression import LinearRegression
from client_sdk.protocol.statistics.kinds.moments import Moments
from client_sdk.protocol.statistics.kinds.quantiles import Quantiles
from client_sdk.protocol.statistics.kinds.survival import Survival
from client_sdk.protocol.statistics.kinds.table import Table
from client_sdk.protocol.statistics.kinds.tables import Tables

Question = Annotated[
    Count | Covariance | Evaluation | LinearRegression | Moments | Quantiles | Survival | Table | Tables,
    Field(discriminator="kind"),
]
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)
