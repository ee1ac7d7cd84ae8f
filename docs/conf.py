"""Configuration of the documentation builder."""

project = "simnet-testbed"
author = "The simnet-testbed authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "simnet-testbed"
html_show_copyright = False
exclude_patterns = ["_build"]
nitpicky = False
