"""Explorers: pictures with their own controls, computed in the browser. They need anywidget; see ``widgets.explorer``."""
