"""Configuration of the site: `make docs`."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import jaxpe  # noqa: E402

project = "jaxpe"
author = "The jaxpe authors"
copyright = "the jaxpe authors"
version = release = jaxpe.__version__
# With "(unreleased)", as the changelog says.
(SHOWN,) = re.findall(
    rf"^## ({re.escape(release)}.*)", (HERE.parent / "CHANGELOG.md").read_text(), re.M
)

extensions = ["myst_nb", "sphinx_copybutton", "sphinxcontrib.bibtex", "jaxpe_site"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "README.md"]
root_doc = "index"
nitpicky = True
smartquotes = False
highlight_language = "text"
suppress_warnings = ["config.cache", "toc.empty_glob"]

nb_execution_mode = "off"  # notebooks are shown with the outputs that are stored in them
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["../jaxpe/report/references.bib"]
bibtex_default_style = "alpha"

html_math_renderer = "mathml"  # of jaxpe_site
html_theme = "furo"
html_title = f"jaxpe {SHOWN}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
copybutton_selector = "div:not(.output) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
