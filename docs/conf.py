"""How the site is built: pages in the order of one navigation, the gallery, the reference.

The source folder is the repository itself, so that links between Markdown files mean the same here
and on a code host. Run it by ``make docs``.
"""

import inspect
import re
import warnings
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx_gallery.sorting import ExplicitOrder

import everyfold
import everyfold.papers
import everyfold.streams
from everyfold.crossval import Closed
from everyfold.io import RowSource
from everyfold.operators import Structure

ROOT = Path(__file__).parent.parent
warnings.filterwarnings("ignore", message=".*Agg.*", category=UserWarning)

project = "everyfold"
author = "The everyfold developers"
copyright = "The everyfold developers"
version = release = everyfold.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "*.md"]
exclude_patterns = ["build", "dist", ".*", "src", "tests", "benchmarks", "examples", "docs/_*"]
suppress_warnings = ["config.cache"]  # a function among the settings below
nitpicky = False

# -- Navigation: a page is left out while its file does not exist ------------------------------

NAVIGATION = {
    "docs/index": [
        "Start <docs/start>",
        "Which one? <docs/which>",
        "Guide <docs/guide>",
        "Gallery <docs/gallery/index>",
        "Reference <docs/api>",
        "Background <docs/background>",
        "Project <docs/project>",
    ],
    "docs/guide": [
        "docs/judge",
        "docs/search",
        "docs/predictions",
        "docs/models",
        "docs/linear",
        "docs/gaussian-processes",
        "docs/many-targets",
        "docs/lowrank",
        "docs/scaling",
        "docs/papers",
        "docs/circulant",
        "docs/cli",
        "docs/recipes",
        "docs/coming-from",
        "docs/when-not",
    ],
    "docs/background": [
        "docs/glossary",
        "docs/mathematics",
        "docs/reproduction",
        "docs/peers",
        "docs/architecture",
    ],
    "docs/project": [
        "docs/versions",
        "docs/checklists",
        "CHANGELOG",
        "CONTRIBUTING",
        "RELEASING",
        "GOVERNANCE",
        "CODE_OF_CONDUCT",
        "SECURITY",
        "README and its figures <README>",
    ],
}


def _exists(entry):
    """Whether an entry of the navigation has a file, or is made by the gallery."""
    page = entry.partition("<")[2].rstrip(">") or entry
    return page.startswith("docs/gallery/") or any(
        (ROOT / f"{page}.{kind}").exists() for kind in ("md", "rst")
    )


def _toctree(page):
    """The entries below a page, as a directive that shows nothing."""
    entries = [f"/{entry}" if "<" not in entry else entry for entry in NAVIGATION[page]]
    shown = [re.sub("<", "</", entry) for entry in entries if _exists(entry.lstrip("/"))]
    return "\n".join(["", "```{toctree}", ":hidden:", "", *shown, "```", ""])


def _for_the_site(app, page, source):
    """Add the navigation, lead to pages of the gallery, and draw the flowchart in the page."""
    if app.env.doc2path(page).suffix == ".rst":
        return
    here = r"\]\((?:\.\./)?examples/gallery/"
    text = re.sub(rf"{here}(\w+)\.py\)", r"](/docs/gallery/\1.rst)", source[0])
    text = re.sub(rf"{here}?\)", "](/docs/gallery/index.rst)", text)
    text = re.sub(r"!\[[^\]]*\]\((\w+\.svg)\)", _drawn, text)
    source[0] = text + (_toctree(page) if page in NAVIGATION else "")


def _drawn(image):
    """The drawing itself in place of a link to it, so that its boxes can be clicked on."""
    drawing = (ROOT / "docs" / image[1]).read_text("utf-8").partition("?>")[2].strip()
    return f'<div class="flowchart-frame">\n{drawing}\n</div>'


def _not_ours(app, env, node, contents):
    """References in docstrings that scikit-learn wrote lead to its own site, which is not here."""
    is_theirs = node.get("refdoc", "").startswith("docs/api/")
    return contents if is_theirs and node.get("reftype") in ("ref", "term", "doc") else None


def _formula(translator, node):
    """A formula as MathML, which browsers draw by themselves: no script, no network."""
    is_block = isinstance(node, nodes.math_block)
    tag = "div" if is_block else "span"
    translator.body.append(translator.starttag(node, tag, "", CLASS="math"))
    # A subscript would stand below a letter with an accent, and bars of norms grow with theirs.
    text = re.sub(r"(\\(?:hat|tilde|bar) ?(?:\w|\{\w\}))_", r"\1{}_", node.astext())
    drawn = tex2mathml(" ".join(text.split()), as_block=is_block)
    translator.body.append(drawn.replace("<mo>‖</mo>", '<mo stretchy="false">‖</mo>'))
    translator.body.append(f"</{tag}>")
    raise nodes.SkipNode


# A letter or a bracket with an index: û_S, K_{:A}, D^½, e^(−m); but neither x86_64 nor a_long_name.
_SCRIPT = re.compile(
    r"(?<![^\W_][^\W_])(?<=[^\W_]|[)̂̃̄])"
    r"(?:_(?P<low>\{[^}]+\}|\([^)]+\)|[^\W_]+)|\^(?:(?P<high>\{[^}]+\}|[^\W_.]+(?:\.\d+)?)|\((?P<power>[^)]+)\)))"
)


class _Scripts(SphinxPostTransform):
    """Set the indices and powers that Markdown pages have in their text."""

    default_priority = 400

    def run(self):
        if self.env.doc2path(self.env.docname).suffix != ".md":
            return
        for text in list(self.document.findall(nodes.Text)):
            if isinstance(text.parent, nodes.literal | nodes.FixedTextElement | nodes.math):
                continue
            parts, end = [], 0
            for found in _SCRIPT.finditer(text):
                kind = nodes.subscript if found["low"] else nodes.superscript
                script = (found["low"] or found["high"] or found["power"]).strip("{}")
                parts += [nodes.Text(text[end : found.start()]), kind("", script)]
                end = found.end()
            if parts:
                text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def setup(app):
    """Connect the rules."""
    app.add_post_transform(_Scripts)
    app.connect("source-read", _for_the_site)
    app.connect("missing-reference", _not_ours)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))


# -- Markdown ------------------------------------------------------------------------------------

source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_fence_as_directive = ["math"]  # code hosts typeset these blocks as well
myst_heading_anchors = 4  # the anchors of code hosts

# -- Reference -----------------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = False


def _only():
    """Of classes with methods that only the library calls: those that users call."""
    shown = {"SearchPlan": ["as_dict"], "MethodOptions": [], "Granularity": []}
    public = [vars(module) for module in (everyfold.papers, everyfold.streams)]
    classes = [getattr(everyfold, name) for name in everyfold.__all__]
    classes += [found for names in public for found in names.values()]
    for kind in filter(inspect.isclass, classes):
        if issubclass(kind, Structure):
            shown[kind.__name__] = ["arrange", "candidates", "sample"]
        elif kind.__name__.endswith("Display"):
            shown[kind.__name__] = ["from_search", "from_estimator", "plot"]
        elif issubclass(kind, Closed) or (issubclass(kind, RowSource) and kind is not RowSource):
            shown[kind.__name__] = []
        elif hasattr(kind, "held_out_sets"):
            shown[kind.__name__] = ["split", "get_n_splits"]
        if kind.__name__ in shown:
            shown[kind.__name__] = [name for name in shown[kind.__name__] if hasattr(kind, name)]
    return shown


autosummary_context = {"only": _only()}
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
templates_path = [str(ROOT / "docs" / "_templates")]

# -- Gallery -------------------------------------------------------------------------------------

GALLERY = [
    "plot_cv_surface.py",
    "plot_leave_one_out.py",
    "plot_noise_leave_one_out.py",
    "plot_which_rows.py",
    "plot_calibration.py",
    "plot_nested.py",
    "plot_intervals.py",
    "plot_comparing.py",
    "plot_permutations.py",
    "plot_time_resolved.py",
    "plot_jackknife.py",
    "plot_groups.py",
    "plot_embeddings.py",
    "plot_spatial_buffers.py",
    "plot_length_scales.py",
    "plot_gaussian_process.py",
    "plot_many_targets.py",
    "plot_spectra.py",
    "plot_text.py",
    "plot_precomputed.py",
    "plot_low_rank_first.py",
    "plot_million_rows.py",
    "plot_circulant.py",
    "plot_collapse.py",
    "plot_paper_table.py",
]
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": str(ROOT / "docs" / "gallery"),
    "filename_pattern": r"plot_",
    "within_subsection_order": ExplicitOrder(GALLERY),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "plot_gallery": "True",
    "matplotlib_animations": False,
    "copyfile_regex": "",
    "capture_repr": (),  # what examples print, not what their last line happens to return
}

# -- Look ----------------------------------------------------------------------------------------

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "everyfold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"docs/start": [], "docs/which": []}  # nothing is below them
html_additional_pages = {"index": "to-docs.html"}
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # the theme reports an error without one
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
linkcheck_anchors = False
