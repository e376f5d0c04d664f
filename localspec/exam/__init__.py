"""The exam of the built-in model: questions it must answer, questions it must admit it cannot, and their grading.

Written before the model is trained, by somebody who does not read what it is trained on. Knows no model.
"""
