# The worker. Agents are not baked in: mount them under /app (docker-compose.yml does), or build on top of this image.
#
#   docker build -t turngate-worker .
#   docker run -v ./my_agents:/app/my_agents:ro -e TURNGATE_AGENTS=my_agents:main -e TEMPORAL_ADDRESS=... turngate-worker

ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON_VERSION}-slim
# Model providers' packages, for example "langchain-openai".
ARG EXTRA_PACKAGES=""
RUN useradd --system --uid 10001 --create-home turngate
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt \
      "$(ls /wheels/turngate-*.whl)[langchain,notify,mcp,crypto,otel]" ${EXTRA_PACKAGES} \
    && rm -rf /wheels /tmp/constraints.txt
WORKDIR /app
COPY worker.py .
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TURNGATE_METRICS=0.0.0.0:9464
USER 10001
EXPOSE 9464
# The worker is well while it polls: a poller count above zero in its own metrics.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["python", "-c", "import re, urllib.request as u; \
t = u.urlopen('http://127.0.0.1:9464/metrics', timeout=4).read().decode(); \
raise SystemExit(not re.search('^temporal_num_pollers[{].*[}] [1-9]', t, re.M))"]
ENTRYPOINT ["python", "worker.py"]
