"""Explorers: pictures with their own controls. Those computed in the browser need anywidget, the others ipywidgets."""
