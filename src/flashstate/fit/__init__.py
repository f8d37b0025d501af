"""What prefill costs on a server: measures it over HTTP and fits D and E of T(a, b).

May import core, files, console, cost_file and replay's client. Knows no engine, no vLLM and no torch.
"""
