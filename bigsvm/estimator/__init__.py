"""`BigSVC`, the classifier for scikit-learn."""
