# Dagster's web page, daemon and code in one container, set up as on a machine:
#   docker build -t acid-platform .
#   docker run -p 127.0.0.1:3000:3000 -v acid-var:/app/var acid-platform
# Dagster has no login, and whoever reaches it runs code: for others put a proxy with one in front.
# State (warehouse, metastore, Dagster's history) lives in /app/var: keep it on a volume that is a
# local disk, and stop with SIGTERM.
FROM python:3.12-slim-bookworm

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps tini openjdk-17-jre-headless make \
    && rm -rf /var/lib/apt/lists/*

# Nothing here needs the rights of root.
RUN useradd --create-home acid && mkdir -p /app/var && chown -R acid /app
USER acid
WORKDIR /app
# No Jupyter here; empty where the demo is gone. Compiled, since an image starts many containers.
ENV ACID_EXTRAS=demo,production UV_COMPILE_BYTECODE=1
# The packages change less often than the code.
COPY --chown=acid Makefile requirements.lock pyproject.toml ./
COPY --chown=acid scripts scripts
RUN make setup PYTHON=python3.12 && rm -rf "$HOME/.cache"

COPY --chown=acid . .
ENV ACID_HOME=/app/var PATH=/app/.venv/bin:$PATH
EXPOSE 3000
VOLUME /app/var
ENTRYPOINT ["tini", "--"]
CMD ["make", "dev", "HOST=0.0.0.0"]
