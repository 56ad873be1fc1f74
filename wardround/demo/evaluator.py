"""The declared evaluation set as a process of its own: fetches every released model and puts its metrics.

The set is outside every guarantee, and the study says so: its patients are not protected by the budget. It is what
`wardround evaluate STUDY --watch` does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from client_sdk.api.client import ApiKey, Client
from client_sdk.api.config import load as load_settings
from client_sdk.errors import ConfigurationError
from client_sdk.released.evaluation import watch
from private_learning.records import load as load_records

PAUSE_SECONDS = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("data", type=Path)
    parser.add_argument("--patient-column")
    parser.add_argument("--name", required=True, help="what the evaluation set is called in the study's metrics")
    options = parser.parse_args()
    settings = load_settings()
    if settings.api_key is None:
        raise ConfigurationError("set WARDROUND_API_KEY_FILE")
    records = load_records(options.data, patient_column=options.patient_column)
    with Client(settings.connection(), ApiKey(settings.api_key.get_secret_value())) as client:
        watch(client, options.study, records, options.name, every=PAUSE_SECONDS)


if __name__ == "__main__":
    main()
