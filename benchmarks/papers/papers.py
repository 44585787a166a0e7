"""The papers by year."""

from benchmarks.papers import bif2014, fbif2018

PAPERS = {"2014": bif2014, "2018": fbif2018}
