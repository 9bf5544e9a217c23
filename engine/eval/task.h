/* engine/eval/task.h - accuracy on questions with choices: which choice does the model find the most likely?
 * Included by eval.h. */
#ifndef QDYNO_ENGINE_EVAL_TASK_H
#define QDYNO_ENGINE_EVAL_TASK_H

#include "base/base.h"

struct chat; /* engine/chat/chat.h */
struct model;

/* One question. Choice i is scored by the log-likelihood of ending[i] after lead[i]. A cloze has one choice,
 * which is right when every one of its tokens is the model's first. Texts are owned by the set. */
enum { TASK_CHOICES = 16 };
struct task_item {
    const char *lead[TASK_CHOICES], *ending[TASK_CHOICES];
    int choices, answer;
};
struct task_set {
    struct task_item *item;
    int n;
    struct arena memory;
};
/* Parse lines of JSON; empty lines are skipped. Forms of a line, by its keys:
 *   question, choices [texts], answer (index from 0, letter from A, or the text of a choice)
 *   ctx, endings [texts], label (index from 0)                               HellaSwag
 *   sentence with one "_", option1, option2, answer ("1" or "2")            WinoGrande: the rest after "_" is
 * scored text                                                                    cloze: its last word is the
 * answer shots: so many items from the beginning are not asked, but written before each question with their
 * right answers. *out: task_set_free, also after an error. Errors: ERR_FORMAT (line, expected, found);
 * ERR_USAGE (no item is left to ask); ERR_NOMEM. */
enum err_code task_set_parse(struct task_set *out, const char *text, size_t n, int shots, struct err *why);
void task_set_free(struct task_set *s);

/* What a model answers, item by item. */
struct task_answers {
    int n;
    bool *right, *right_normalized; /* [n] owned: task_answers_free. normalized: log-likelihoods divided by
                                       the bytes of the choice */
};
typedef bool task_progress_fn(void *arg, int done, int of, int right);
/* Ask every item. chat NULL: a choice follows its lead as text; otherwise the lead is the user's message, and
 * the choice, without the space before it, is the beginning of the answer in the model's template. The
 * model's sequence 0 is emptied. Errors: those of chat_encode; ERR_USAGE (no tokenizer; an item does not fit
 * the context, by number); ERR_CANCELLED; those of model_forward. */
enum err_code task_answer(struct task_answers *out, struct model *m, const struct task_set *s,
                          const struct chat *chat, task_progress_fn *progress, void *arg, struct err *why);
void task_answers_free(struct task_answers *a);

/* A share of right answers with its 95 % Wilson interval. */
struct task_share {
    int right, n;
    double share, lower, upper;
};
struct task_share task_share(const bool *right, int n);
/* The share that guessing reaches; 0 for clozes. */
double task_chance(const struct task_set *s);

/* Two models on the same items: exact McNemar test of the discordant ones. */
struct task_pair {
    int only_first, only_second; /* right in one of them only */
    double p;                    /* two-sided; 1 without discordant items */
    /* Accuracy of the second minus that of the first, and its paired 95 % interval (Agresti and Min 2005):
     * without a discordant item the bounds are about 2 / n from 0. */
    double change, lower, upper;
};
struct task_pair task_compare(const bool *first, const bool *second, int n);
/* How far the bounds are from 0 when no item changed: no smaller loss can be excluded with n items. */
double task_least_half(double n);
/* The fewest items with which task_least_half is at most `half` (> 0). */
int task_least_items(double half);

#endif
