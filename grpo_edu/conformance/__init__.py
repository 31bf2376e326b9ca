"""Is a loss function the loss that it claims to be? A test suite for other people's losses.

One line of pytest checks any function against a recipe of the catalog::

    pytest -p grpo_edu.conformance.plugin --pyargs grpo_edu.conformance \\
        --loss my_losses:grpo_loss --claims dr_grpo

Each test compares the push of every token, -∂loss/∂log π, with the recipe's, and a failure says in
words what differs. ``-p`` stands there because pytest reads the options of a package that is named
by ``--pyargs`` only from a plugin.
"""
