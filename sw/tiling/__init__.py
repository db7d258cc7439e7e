"""Blocking of matrix products: tile sizes and loop order when the input buffers hold only parts.

`problem` describes the task, `cost` the cost of a choice, and `plan` chooses. The method is that of a CN
patent application on blocking of matrix products, called "the source" here and cited by paragraph.
"""
