"""What a reader should know of each section: how it was thinned, where we differ, and why."""

from dataclasses import replace

from scripts.paper.report import Section, paragraph

PREFACE = paragraph(
    "Every table and figure of Alaiz and Suykens, <i>Modified Frank-Wolfe Algorithm for Enhanced "
    "Sparsity in Support Vector Machine Classifiers</i>, made again by "
    "<code>python -m scripts.paper.reproduce</code>. SVM is plain pairwise Frank-Wolfe "
    "(<code>fw</code>) with "
    "C tuned, I-SVM the modified method (<code>mfw</code>) with C tuned, F-I-SVM the same with C "
    "= 1, normalized. The tolerance is 1e-5 throughout."
) + paragraph(
    "Not stated in the paper, and found by experiment: C is normalized as C d / n (d features, n "
    "training patterns); the ten repetitions are the ten folds of one division; rows stay in the "
    "order of their file, and training starts from the first. Not stated and not found: the values "
    "of sigma that were tried, and which rows are in which fold. Whatever depends on one choice "
    "of C and sigma, as SVM's and I-SVM's iterations do, can differ by much for that reason "
    "alone."
)

WHY: dict[str, str] = {
    "datasets": paragraph(
        "As many training rows as in the paper, or one more or fewer: there are ten folds."
    ),
    "larger": paragraph(
        "magic is tuned on all 13,020 training rows (ten folds, all C, eight sigma, at most "
        "50,000 steps each); ijcnn1's C on the folds of the section on C. Each "
        "model is then trained on all rows. One run each, in the paper too. magic's rows are "
        "split at random, and the paper's split is not known."
    ),
    "over-C": paragraph("All ten folds and all eleven C; sigma is the best of eight for magic."),
    "exhaustive": paragraph(
        "Thinned: four sigma (1/4, 1, 4, 16; the paper does not give its own), and a training "
        "during cross-validation ends after 50,000 steps. All eleven C, ten folds. On mushrooms, "
        "where everything can be right, the search ends at the first C and sigma without an "
        "error, which is what the whole grid would have chosen."
    )
    + paragraph(
        "F-I-SVM with the linear kernel has nothing to tune, and there the figures agree. SVM's "
        "and I-SVM's iterations grow a hundredfold from C = 10 to C = 1e5 while the accuracy "
        "hardly changes, so that cross-validation picks among these C almost by lot: in the paper "
        "the deviations of such cells often exceed their means. With the RBF kernel another sigma "
        "makes another model, with another number of support vectors."
    ),
    "miniboone": paragraph(
        "Thinned: four sigma for the tuning on 5,000 rows. The paper's 100,000 training rows are "
        "of the whole UCI set; the samples here are smaller. Its figure has no table."
    ),
    "initialization": paragraph(
        "Thinned: all starts where there are at most 250 training rows (heart, iris, sonar), else "
        "100 drawn at random. The overlap of two sets is what both have of what either has. It "
        "hangs on the C that was chosen: a large one makes all rows that matter working patterns, "
        "whatever the start."
    ),
    "initialization-heart": paragraph(
        "Thinned: all starts up to C = 1,000, and 20 of them beyond, where a training takes up to "
        "half a million steps."
    ),
}


def explained(section: Section) -> Section:
    "The section with its explanation ahead of it."
    return replace(section, html=WHY.get(section.name, "") + section.html)
