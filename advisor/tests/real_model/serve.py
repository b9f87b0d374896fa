"""Serves one GGUF with an OpenAI API on loopback; prints its address, ends when standard input does."""

import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1
# One thread: more of them collapse on a machine that is busy with the tests.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
