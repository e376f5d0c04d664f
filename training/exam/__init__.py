"""The exam of the built-in model: questions it must answer, questions it must admit it cannot, and their grading.

Written by somebody who did not read what the model is trained on, after its first part and before a training on it.
Ten questions were later reworded or graded otherwise, because the program had changed. Every version has sat this
exam, and answers were lengthened in ways that its score rewards. Knows no model.
"""
