/* engine/train/grammar.h - the grammar of the stories: tables of rules, compiled by grammar.c. Internal.
 *
 * A rule is a list of forms; one of them is chosen at random. "%3 " at the start of a form gives it weight 3
 * instead of 1. A form is text with these parts:
 *
 *   [rule]       a form of that rule
 *   {x=rule}     the same, stored in variable x. Never the value of another variable of the story, so two
 *                people in a story are different. Such forms may have fields, separated by '|'; the first is
 *                written
 *   {x}          the value of x; {x.1} its field 1 and so on; {a x} and {a x.1} with the article a or an
 *   {x.he}       a pronoun (he him his He His) for a person whose field 1 is "f" or "m"
 *   {x#n}        x in singular or plural: field 1 (the plural) unless n is 1
 *   {n=2..9}     n becomes a number, all equally likely, written as a word; bounds may be expressions
 *   {=n+2*m}     the value of an expression as a word. It is evaluated from left to right: (n+2)*m
 *   {!x=y}       x becomes a copy of y, the value of an expression, or a number from 2..9; nothing is written
 *   (n>m?A|B)    A if the condition holds, else B; > < = compare numbers, = also values. B may be omitted
 *   {^x}         any of these, capitalized
 *
 * The first letter of a sentence is capitalized automatically, except after a quotation mark.
 *
 * Every choice must show in the text soon after it was made. Then a text has one derivation, and its
 * probability is the product of the probabilities of its choices. (corpus_score adds up several derivations.)
 */
#ifndef QDYNO_ENGINE_TRAIN_GRAMMAR_H
#define QDYNO_ENGINE_TRAIN_GRAMMAR_H

struct grammar_rule {
    const char *name;
    const char *const *forms; /* ends with NULL */
};
/* End with a row whose name is NULL. A story is a form of the rule "story". */
extern const struct grammar_rule GRAMMAR_WORDS[], GRAMMAR_STORIES[];

#endif
