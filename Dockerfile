# Two images from one source: the coordinator, which needs no torch, and what a hospital runs.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PATH=/opt/wardround/bin:$PATH
RUN groupadd --gid 10001 wardround \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/wardround --create-home --shell /usr/sbin/nologin wardround \
 && python -m venv /opt/wardround
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY accounting accounting
COPY client_sdk client_sdk
COPY server server
COPY simulation simulation
COPY wardround wardround
COPY migrations migrations

FROM base AS server
RUN pip install --constraint constraints.txt '.[server]' && rm -rf /src
WORKDIR /var/lib/wardround
USER wardround
ENV WARDROUND_HOME=/var/lib/wardround WARDROUND_HOST=0.0.0.0
VOLUME /var/lib/wardround
EXPOSE 8000
CMD ["wardround", "serve"]

FROM base AS client
RUN pip install --constraint constraints.txt '.[client]' && rm -rf /src
WORKDIR /var/lib/wardround
USER wardround
VOLUME /var/lib/wardround
ENTRYPOINT ["wardround"]
CMD ["--help"]
