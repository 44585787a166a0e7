"""The papers by year."""

from benchmarks.papers import bif2014, circulant2013, fbif2018, granularity2016, nystrom2012

PAPERS = {
    "2012": nystrom2012,
    "2013": circulant2013,
    "2014": bif2014,
    "2016": granularity2016,
    "2018": fbif2018,
}
