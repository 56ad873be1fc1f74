# Two images from one source: the coordinator, which needs no torch, and what a hospital runs.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${PYTHON_IMAGE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PATH=/opt/wardround/bin:$PATH
# Group 0 may write to the home, because OpenShift runs containers as any user of that group, without a name.
ENV HOME=/var/lib/wardround
RUN groupadd --gid 10001 wardround \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/wardround --create-home --shell /usr/sbin/nologin wardround \
 && chgrp 0 /var/lib/wardround && chmod g=u /var/lib/wardround \
 && python -m venv /opt/wardround
COPY constraints.txt /src/
COPY deploy/locks /src/deploy/locks
WORKDIR /src

# The wheel, with the charts' script inside; what makes it stays behind.
FROM base AS build
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY LICENSES LICENSES
COPY accounting accounting
COPY study_protocol study_protocol
COPY private_learning private_learning
COPY synthesis synthesis
COPY record_sources record_sources
COPY client_sdk client_sdk
COPY server server
COPY simulation simulation
COPY wardround wardround
COPY migrations migrations
# Nothing is taken from the index whose hash is not written down here.
RUN pip install --require-hashes --requirement deploy/locks/build.txt \
 && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM base AS server
# The server and what reads an object store; `traces` adds what sends OpenTelemetry's traces, `sso` what logs people in.
ARG EXTRA=objects
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --require-hashes --requirement "deploy/locks/$EXTRA.txt" \
 && pip install --no-deps /wheels/*.whl && rm -rf /src
WORKDIR /var/lib/wardround
USER wardround
ENV WARDROUND_HOME=/var/lib/wardround WARDROUND_HOST=0.0.0.0
VOLUME /var/lib/wardround
EXPOSE 8000 9464
CMD ["wardround", "serve"]

FROM base AS client
# torch alone has no hash here: its builds (CPU, CUDA) come from different indices.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --require-hashes --requirement deploy/locks/client.txt \
 && pip install --no-deps --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)" \
 && pip install --no-deps /wheels/*.whl && rm -rf /src
WORKDIR /var/lib/wardround
USER wardround
VOLUME /var/lib/wardround
ENTRYPOINT ["wardround"]
CMD ["--help"]
