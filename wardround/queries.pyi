from client_sdk.api.answered import Answered as Answered
from client_sdk.errors import QueryFailed as QueryFailed
from client_sdk.errors import QueryNotAnswered as QueryNotAnswered
from study_protocol.study.queries import QueryDocument as QueryDocument
