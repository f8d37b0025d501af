"""What serving earns and costs: user cost, revenue and profit, from measured rates and dated prices.

`prices` and `serving` are the values, `accounts` the sums, `results_file` reads what other commands measured.
May import: yaml, typer and rich; of ours, console and files.
"""
