# Dagster's web page, daemon and code in one container, set up as on a machine:
#   docker build -t acid-platform .
#   docker run -p 3000:3000 -v acid-var:/app/var acid-platform
# State (warehouse, metastore, Dagster's history) lives in /app/var: keep it on a volume that is a
# local disk, and stop with SIGTERM.
FROM python:3.12-slim-bookworm

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps tini openjdk-17-jre-headless make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
# No Jupyter here; empty where the demo is gone. Compiled, since an image starts many containers.
ENV ACID_EXTRAS=demo UV_COMPILE_BYTECODE=1
# The packages change less often than the code.
COPY Makefile requirements.lock pyproject.toml ./
COPY scripts scripts
RUN make setup PYTHON=python3.12 && rm -rf "$HOME/.cache"

COPY . .
ENV ACID_HOME=/app/var
EXPOSE 3000
VOLUME /app/var
ENTRYPOINT ["tini", "--"]
CMD ["make", "dev", "HOST=0.0.0.0"]
