"""The exam of the built-in model: questions it must answer, questions it must admit it cannot, what a newcomer would
type, and their grading.

Written by people who did not read what the model is trained on: the first part before a training on it, a newcomer's
questions and those about what had been added to the program later. Some were reworded or graded otherwise, because the
program had changed. Every version has sat the exam of its day, and answers were lengthened in ways that its score
rewards. Knows no model.
"""
