"""The exam of the built-in model: questions it must answer, questions it must admit it cannot, and their grading.

Written by somebody who does not read what the model is trained on; every version of it has sat this exam. Knows no
model.
"""
