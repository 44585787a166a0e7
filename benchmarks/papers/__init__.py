"""The experiments of five papers: what they declare, what they print, and what the library finds.

``python -m benchmarks.papers run`` computes the cells that are missing and keeps every finished
one; ``python -m benchmarks.papers report`` writes the tables from them. A file of this folder whose
name ends in a year declares the experiments of one paper and holds the figures it prints.
"""
