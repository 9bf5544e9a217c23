/* engine/train/grammar.h - what stories are made of: a table of rules that engine/train/corpus.c reads.
 *
 * A rule is a list of forms, one of which is chosen; "%3 " in front gives a form the weight 3 instead of 1. A
 * form is text with these parts:
 *
 *   [rule]       one of the rule's forms stands here
 *   {x=rule}     the same, and x remembers it; never a form that another variable of the story holds, so two
 *                persons of a story are two. Such forms may have fields, divided by '|'; the first is said
 *   {x}          what x remembers; {x.1} its field 1 and so on; {a x} with its article, {a x.1} too
 *   {x.he}       a pronoun: he him his He His, of a person whose field 1 is "f" or "m"
 *   {x#n}        a thing in the number of n: its field 1, the plural, unless n is 1
 *   {n=2..9}     n becomes a number, all of them equally likely, and is said as a word; bounds may be sums
 *   {=n+2*m}     a number as a word; worked from left to right
 *   {!x=y}       x remembers what y does, or a sum, or a number of 2..9; nothing is said
 *   (n>m?A|B)    A where that is so, else B; > < =, between numbers, or = between things. B may be left out
 *   {^x}         any of these, with a capital
 *
 * A letter at the beginning of a sentence becomes a capital by itself, but not behind a quotation mark.
 *
 * What is chosen must show in the text soon: then the text tells its derivation, and its probability is the
 * product of the choices (corpus_score finds derivations, and adds them up where there are several). */
#ifndef QDYNO_ENGINE_TRAIN_GRAMMAR_H
#define QDYNO_ENGINE_TRAIN_GRAMMAR_H

struct grammar_rule {
    const char *name;
    const char *const *forms; /* up to NULL */
};
/* Up to the row whose name is NULL; a story is the rule "story". */
extern const struct grammar_rule GRAMMAR_WORDS[], GRAMMAR_STORIES[];

#endif
