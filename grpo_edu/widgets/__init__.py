"""Explorers and labs: pictures with their own controls. All need anywidget.

The explorers (``explorers``) compute in the browser and work in a saved page without a kernel; the
labs draw in Python for every move of a control.
"""
