"""Every kind of question. A new one is a file here and a name in `Question`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from client_sdk.protocol.statistics.kinds.count import Count
from client_sdk.protocol.statistics.kinds.table import Table

Question = Annotated[Count | Table, Field(discriminator="kind")]
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)
