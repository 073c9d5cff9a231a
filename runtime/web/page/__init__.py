"""The web page for operators. docs/page.md is its guide. Each page is a row of ``table.PAGES``."""
