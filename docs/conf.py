"""Configuration of the site: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import jaxpe  # noqa: E402

project = "jaxpe"
author = "The jaxpe authors"
copyright = "the jaxpe authors"
version = release = jaxpe.__version__

extensions = ["myst_nb", "sphinxcontrib.bibtex", "jaxpe_site"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext", "README.md"]
root_doc = "index"
nitpicky = True
smartquotes = False
highlight_language = "text"
suppress_warnings = ["config.cache", "toc.empty_glob"]

nb_execution_mode = "off"  # notebooks are shown with the outputs that are stored in them
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["../jaxpe/report/references.bib"]
bibtex_default_style = "alpha"

html_theme = "furo"
html_title = "jaxpe"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
