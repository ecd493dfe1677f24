"""Numbers and pictures of the documents, made by the product itself: `python -m planner.handbook` writes them.

Pages of docs/ hold marked blocks (`<!-- table: NAME -->` to `<!-- end -->`) whose text a function here gives, so that a
test can hold every number in them against today's planner.
"""
