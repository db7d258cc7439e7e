"""Blocking of matrix products: piece sizes and loop order for input buffers that hold only parts.

`problem` says what is given, `cost` what a choice costs, `plan` makes the choice.
The method is that of a CN patent application on blocking of matrix products, called "the source" here
and cited by paragraph.
"""
