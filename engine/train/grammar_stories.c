/* The grammar's stories: an opening, one or more events, and an end that refers to the opening. Events link
 * words over many sentences (who has what, where a thing is, how many are left, who is tallest), so a reader
 * who follows the story can predict the answers. */
#include <stddef.h>

#include "engine/train/grammar.h"

#define FORMS(...)                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

const struct grammar_rule GRAMMAR_STORIES[] = {
    { "story",
      FORMS("%2 once upon a time there was a {trait=trait} child named {hero=name}. {hero.He} lived "
            "{home=home}. [scene][days] [end_trait]",
            "{hero=name} was a {trait=trait} {hero.girl} who lived {home=home}. [scene][days] [end_trait]",
            "{hero=name} loved {hobby=hobby} more than anything. [scene][days] [end_hobby]",
            "there was once a {pet=pet} named {pname=petname}. {pname} lived with {hero=name} {home=home}. "
            "[scene][days] [end_pet]",
            "{hero=name} and {hero.his} {kin=elder} lived {home=home}. [scene][days] [end_kin]",
            "%2 {hero=name} had a good friend, {pal=name}. [scene][days] [end_pal]") },
    { "scene",
      FORMS("%12 ", "The sun was shining. ", "A {bird=bird} sang in the old {tree=tree}. ",
            "It smelled of {smell=ingredient}. ", "Far away a bell rang. ", "The wind was cold. ",
            "{hero} wore {a cc=color} {garment=garment}. ", "There were clouds over the {place=place}. ",
            "Everybody knew {hero.him}. ", "{hero.He} could see the {place=place} from the window. ",
            "It was almost {n=2..11} o'clock. ", "{hero.He} had {nn=2..7} brothers and sisters. ") },
    { "said", FORMS("%5 said", "whispered", "called", "cried", "murmured") },
    { "asked", FORMS("%4 asked", "wondered", "called") },
    { "days", FORMS("%3 {t=time}, [happening]", "{t=time}, [happening] [later], [happening]") },
    { "later", FORMS("The next day", "A week later", "Some days later", "After that", "Two days later",
                     "Soon after that") },

    { "end_trait", FORMS("Everybody said that {hero} was a very {trait} {hero.girl}.",
                         "{hero} was as {trait} as ever.", "That is how {trait} {hero} was.") },
    { "end_hobby", FORMS("Then {hero} had time {hobby} again.", "In the evening {hero} went home {hobby}.",
                         "But most of all {hero} still loved {hobby}.") },
    { "end_pet",
      FORMS("At night {pname} the {pet} slept next to {hero}.", "{hero} told {pname} the {pet} all about it.",
            "And {pname}? {pname} was the happiest {pet} of all.") },
    { "end_kin", FORMS("At home {hero} told {hero.his} {kin} all about it.",
                       "\"I am proud of you,\" [said] {hero.his} {kin}.",
                       "{hero.His} {kin} gave {hero.him} a big hug.") },
    { "end_pal",
      FORMS("In the evening {hero} told {pal} everything.", "{pal} and {hero} are still good friends.",
            "\"What a day!\" [said] {pal}, and {hero} laughed.") },
    { "joy", FORMS("{hero} was very {feel=feeling}.", "That made {hero} {feel=feeling}.", "{hero} smiled.",
                   "They both laughed.") },

    { "happening", FORMS("%2 [lost]", "[left]", "[gather]", "[kept]", "[moved]", "[shop]", "[compare]",
                         "[ages]", "[weather_day]", "[hungry]", "[riddle]", "[cooking]", "[trip]",
                         "[calendar]", "[race]", "[presents]", "[visit]", "[paint]", "[boxes]", "[promise]",
                         "[broken]", "[hiding]", "[times]", "[share]") },

    { "lost",
      FORMS(
          "{hero} could not find {hero.his} {c=color} {x=thing}. {hero.he} looked {s1=spot}, but it was not "
          "there. [lost_more][lost_end] [joy]") },
    { "lost_more", FORMS("", "{hero.He} looked {s2=spot}, but there was only {a y=thing}. ",
                         "{hero.He} asked {hero.his} {e=elder}, but {e.he} had not seen the {x}. ") },
    { "lost_end",
      FORMS(
          "Then {friend=name} came by. \"Are you looking for {a c} {x}?\" [asked] {friend}. \"I saw it "
          "{s3=spot}.\" {hero} ran to look {s3}, and there it was.",
          "Then {hero} remembered that {hero.he} had left it {s3=spot}. {hero.he} looked {s3} and found the {c} "
          "{x}.",
          "At last {friend=name} found the {x} {s3=spot}. \"Here is your {c} {x},\" [said] {friend}. \"It was "
          "{s3}.\"") },

    { "left",
      FORMS(
          "{hero} had {n=3..12} {f=fruit#n}. {hero.he} gave {m=1..n-1} of them to {friend=name}. \"How many do "
          "you have now?\" [asked] {friend}. {!k=n-m}\"I have {k} {f#k} left,\" [said] {hero}. [left_end]") },
    { "left_end",
      FORMS("\"And I have {m},\" [said] {friend}.",
            "Then {third=name} came and wanted one, too. So {hero} gave away one more and had "
            "(k>1?{=k-1} left|none left at all).",
            "(m>k?\"Now I have more than you,\" [said] {friend}.|(m<k?\"You still have more than me,\" said "
            "{friend}.|\"Now we have the same,\" [said] {friend}.))") },

    { "gather",
      FORMS(
          "{hero} and {friend=name} went to the {p=place} to look for {f=fruit.1}. {hero} found {n=2..9}, and "
          "{friend} found {m=2..9}. (n>m?{hero} had more|(n<m?{friend} had more|both had the same)). Together "
          "they had {=n+m} {f.1}. [gather_end]") },
    { "gather_end", FORMS("They put all {=n+m} in {a v=vessel} and carried it home from the {p}.",
                          "On the way home from the {p} they lost one, so {=n+m-1} were left.",
                          "They gave the {f.1} to {hero}'s {e=elder}, who liked them very much.") },

    { "kept",
      FORMS("{hero} had {a l=looks} {x=thing}. \"Please keep it for me until tonight,\" {hero} said to "
            "{friend=name}. {friend} put the {x} {s1=spot}. [meanwhile] At night {hero} asked, \"Where is my "
            "{x}?\" \"It is {s1},\" [said] {friend}, and brought it back.") },
    { "meanwhile", FORMS("Then {hero} went to the {p=place} and saw {a an=animal} there.",
                         "{hero} helped the {w=worker} in the {w.1} all day.",
                         "Later {third=name} put {a y=thing} {s2=spot}.",
                         "{hero} and {hero.his} {e=elder} bought {f=fruit.1} at the market.") },

    { "moved", FORMS("{hero} put {hero.his} {x=thing} {s1=spot} and went to the {p=place}. [moved_by]") },
    { "moved_by",
      FORMS(
          "%2 While {hero} was at the {p}, {friend=name} took the {x} and put it {s2=spot}. When {hero} came "
          "back, {hero.he} looked {s1}, but the {x} was gone. \"I put it {s2},\" [said] {friend}. So {hero} "
          "looked {s2} and found it.",
          "{friend=name} saw the {x}, but did not touch it. When {hero} came back, {hero.he} looked {s1}, and "
          "the {x} was still there.") },

    { "shop",
      FORMS(
          "{hero} had {n=9..20} coins. In the shop {a x=thing} cost {p1=2..9} coins, and {a y=thing} cost "
          "{p2=2..9} coins. {!sum=p1+p2}\"I would like both,\" [said] {hero}. \"That makes {sum} coins,\" said "
          "the man in the shop. (n<sum?{hero} did not have so much. [cheap]|(n=sum?{hero} gave him all {n} "
          "coins and went home with the {x} and the {y}.|{hero} paid, and {=n-sum} of the {n} coins were "
          "left.))") },
    { "cheap", FORMS("So {hero} took only the {x} and had {=n-p1} (n-p1=1?coin|coins) left.",
                     "So {hero} took only the {y} and had {=n-p2} (n-p2=1?coin|coins) left.") },

    { "compare", FORMS("{hero} said to {friend=name} and {third=name}, \"[compare_how]") },
    { "compare_how",
      FORMS(
          "I am {q=measure} than {friend}, and {friend} is {q} than {third}.\" [compare_ask_first]",
          "{friend} is {q=measure} than {third}, and I am {q} than {friend}.\" [compare_ask_first]",
          "{friend} is {q=measure} than I am, and {third} is {q} than {friend}.\" \"Then I am the {q.1} of "
          "us,\" [said] {third}. \"And you are the {q.2}, {hero}.\"",
          "{third} is {q=measure} than I am, but {friend} is {q} than {third}.\" \"Then I am the {q.1} of us,\" "
          "said {friend}. \"And you are the {q.2}, {hero}.\"") },
    { "compare_ask_first",
      FORMS("\"Then you are the {q.1} of us,\" [said] {friend}. \"And {third} is the {q.2}.\"",
            "\"Then I am the {q.2},\" [said] {third}, \"and you are the {q.1}.\"") },

    { "ages",
      FORMS(
          "it was {hero}'s birthday, and {hero} was {n=4..10} years old now. \"How old are you?\" {hero.he} asked "
          "{hero.his} cousin {friend=name}. \"I am {m=1..6} (m=1?year|years) [ages_than]") },
    { "ages_than",
      FORMS("older than you,\" [said] {friend}. \"Then you are {=n+m},\" [said] {hero}.",
            "older than you,\" [said] {friend}. \"So next year you will be {=n+m+1},\" [said] {hero}.") },

    { "weather_day",
      FORMS(
          "it was {w=weather}, and {w.1}. \"Put on {w.2},\" [said] {hero}'s {e=elder}. So {hero} put on {w.2} and "
          "went out to {w.3}. [weather_end]") },
    { "weather_end", FORMS("{friend=name} came, too, and they stayed outside until it was dark.",
                           "{friend=name} had forgotten {w.2} and had to go home soon.", "[joy2]") },
    { "joy2", FORMS("{hero} loved {w} days.", "There is nothing better when it is {w}.") },

    { "hungry",
      FORMS(
          "{hero} heard a loud \"{an=animal.1}!\" near the {p=place}. It was {a an}. \"Are you hungry?\" [asked] "
          "{hero}. {hero.he} gave the {an} some {an.3}. The {an} ate it all and ran home to its {an.2}.",
          "{hero} met {a l=state} {an=animal} at the {p=place}. It said \"{an.1}\" and did not go away. \"It "
          "wants {an.3},\" [said] {friend=name}. \"It lives in the {an.2}.\" So {hero} and {friend} brought the "
          "{an} to the {an.2} and gave it {an.3}.") },

    { "riddle",
      FORMS(
          "{friend=name} said, \"I am thinking of an animal. It lives in the {an=animal.2} and likes {an.3}.\" "
          "[riddle_guess]") },
    { "riddle_guess",
      FORMS(
          "\"Is it {a an}?\" [asked] {hero}. \"Yes, it says {an.1},\" [said] {friend}.",
          "\"Is it {a wr=animal}?\" [asked] {hero}. \"No, {a wr} says {wr.1}, and my animal says {an.1}.\" \"Then "
          "it is {a an}!\" [said] {hero}.") },

    { "cooking",
      FORMS(
          "{hero} and {hero.his} {e=elder} wanted to make {d=dish}. They needed {i1=ingredient}, "
          "{i2=ingredient} and {i3=ingredient}. [missing] {hero} ran to {friend=name} and asked, \"Do you have "
          "some {i}?\" \"Yes, here you are,\" [said] {friend}. Now they had {i1}, {i2} and {i3}, and soon {d} "
          "{d.1} ready.") },
    { "missing",
      FORMS("They had {i2} and {i3}, but no {i1}.{!i=i1}", "They had {i1} and {i3}, but no {i2}.{!i=i2}",
            "They had {i1} and {i2}, but no {i3}.{!i=i3}") },

    { "trip",
      FORMS(
          "{hero} went to the {p1=place}, then to the {p2=place}, and then to the {p3=place}. In the evening "
          "{hero.his} {e=elder} asked, \"[trip_ask]") },
    { "trip_ask",
      FORMS(
          "Where did you go first?\" \"To the {p1},\" [said] {hero}. \"And what came last?\" \"The {p3}.\"",
          "Where were you after the {p1}?\" \"At the {p2},\" [said] {hero}. \"And after the {p2} I went to the "
          "{p3}.\"",
          "Where were you before the {p3}?\" \"At the {p2},\" [said] {hero}. \"But first I was at the {p1}.\"",
          "Did you see {friend=name}?\" \"Yes,\" [said] {hero}, \"[trip_saw]") },
    { "trip_saw", FORMS("at the {p1}. {friend.he} wanted to come along to the {p2}.\"",
                        "at the {p2}. {friend.he} was coming back from the {p1}.\"",
                        "at the {p3}. {friend.he} had {a x=thing} with {friend.him}.\"") },

    { "calendar",
      FORMS(
          "{friend=name} asked, \"When is {ev=event}?\" \"Today is {d=dayname},\" [said] {hero}, \"and {ev} "
          "[calendar_when]") },
    { "calendar_when",
      FORMS("is tomorrow.\" \"On {d.1}, then,\" [said] {friend}. \"I will come.\"",
            "is the day after tomorrow.\" \"On {d.2}, then,\" [said] {friend}. \"I will come.\"",
            "was yesterday.\" \"On {d.3}?\" [said] {friend}. \"Oh no! I have missed it.\"") },

    { "race",
      FORMS(
          "{hero}, {friend=name} and {third=name} ran to the {p=place} to see who was the fastest. [race_who]") },
    { "race_who",
      FORMS("{!w=hero}{!s=friend}{!l=third}[race_told]", "{!w=hero}{!s=third}{!l=friend}[race_told]",
            "{!w=friend}{!s=hero}{!l=third}[race_told]", "{!w=friend}{!s=third}{!l=hero}[race_told]",
            "{!w=third}{!s=hero}{!l=friend}[race_told]", "{!w=third}{!s=friend}{!l=hero}[race_told]") },
    { "race_told",
      FORMS("{w} was there first, and {l} was last, so {s} was second.",
            "{l} fell down on the way, and {w} won. {s} helped {l} to get up, and they came to the {p} "
            "together.") },

    { "presents",
      FORMS(
          "{hero} got two presents. {friend=name} gave {hero.him} {a c1=color} {x=thing}, and {third=name} gave "
          "{hero.him} {a c2=color} {y=thing}. [presents_ask]") },
    { "presents_ask",
      FORMS("\"Who gave you the {x}?\" [asked] {hero.his} {e=elder}. \"{friend} did,\" [said] {hero}.",
            "\"Who gave you the {y}?\" [asked] {hero.his} {e=elder}. \"{third} did,\" [said] {hero}.",
            "\"What did {friend} give you?\" [asked] {hero.his} {e=elder}. \"The {c1} {x},\" [said] {hero}.",
            "\"What did {third} give you?\" [asked] {hero.his} {e=elder}. \"The {c2} {y},\" [said] {hero}.",
            "{hero} liked the {c1} {x}, but {hero.he} liked the {c2} {y} even more.") },

    { "visit",
      FORMS(
          "{hero} visited the {w=worker} in the {w.1}. \"What is this {w.2} for?\" [asked] {hero}. \"Without it "
          "there would be no {w.3},\" [said] the {w}. [visit_end]") },
    { "visit_end",
      FORMS("\"I want to be {a w}, too,\" [said] {hero}.", "{hero} stayed in the {w.1} until the evening.",
            "Then the {w} let {hero} try the {w.2}.") },

    { "paint",
      FORMS(
          "{hero} wanted to paint {hero.his} {x=thing} {mx=mix.2}, but there was only {mx} and {mx.1} paint. "
          "\"Mix {mx} and {mx.1},\" [said] {friend=name}. {hero} tried it, and soon the {x} was {mx.2}.",
          "{hero} mixed {mx=mix} and {mx.1} paint. \"Look, it is {mx.2} now,\" [said] {hero} to {friend=name}. "
          "Then they painted {a mx.2} {x=thing}.") },

    { "boxes",
      FORMS(
          "{hero} found a {c1=color}, a {c2=color} and a {c3=color} {v=vessel}. In the {c1} {v} was {a x=thing}, "
          "in the {c2} {v} was {a y=thing}, and in the {c3} {v} was {a z=thing}. [boxes_end]") },
    { "boxes_end",
      FORMS("{hero} took the {x} out, so the {c1} {v} was empty.",
            "{hero} took the {y} out, so the {c2} {v} was empty.",
            "{hero} took the {z} out, so the {c3} {v} was empty.",
            "\"Where is the {y}?\" [asked] {friend=name}. \"In the {c2} {v},\" [said] {hero}.",
            "\"Where is the {x}?\" [asked] {friend=name}. \"In the {c1} {v},\" [said] {hero}.") },

    { "promise",
      FORMS(
          "{friend=name} had {a l=looks} {v=vessel} full of {f=fruit.1} and could not carry it. \"If you help me, "
          "I will give you {n=2..8} {f.1},\" [said] {friend}. {hero} carried the {v} to the {p=place}, and "
          "{friend} gave {hero.him} {n} {f.1}. [promise_end]") },
    { "promise_end",
      FORMS("[joy]", "{hero} ate {m=1..n-1} of them, so {=n-m} (n-m=1?was|were) left for the next day.") },

    { "broken",
      FORMS(
          "{friend=name} was {tr=trouble}, because {friend.his} {x=thing} was broken. \"We can mend it,\" said "
          "{hero}. \"All we need is {to=tool}.\" They found {to} {s=spot} and went to work. Soon the {x} was "
          "as good as new, and {friend} was not {tr} any more.") },

    { "hiding",
      FORMS(
          "{hero}, {friend=name} and {third=name} played hide and seek. {hero} counted to {n=5..20}. {friend} hid "
          "{s1=hideout}, and {third} hid {s2=hideout}. [hiding_found]") },
    { "hiding_found",
      FORMS(
          "{hero} looked {s1} and found {friend}. Then {hero.he} looked {s2} and found {third}.",
          "{hero} looked {s2} and found {third}. Then {hero.he} looked {s1} and found {friend}.",
          "{hero} looked {s3=hideout}, but nobody was there. Then {hero.he} saw a foot {s1}. \"I can see you, "
          "{friend}!\" {hero} called.") },

    { "times",
      FORMS(
          "{hero} saw {n=2..5} {v=vessel.1} at the {p=place}. In each of them were {m=2..6} {f=fruit.1}. \"How "
          "many {f.1} are there?\" [asked] {friend=name}. \"{^=n} times {m} is {=n*m},\" [said] {hero}.") },
    { "share",
      FORMS(
          "{!k=2..9}{hero} had {=k*2} {f=fruit.1} and wanted to share them with {friend=name}. Each of them got {k}. "
          "[share_end]") },
    { "share_end",
      FORMS("\"Thank you,\" [said] {friend}.", "{friend} ate one at once and had (k=2?one|{=k-1}) left.",
            "Then {third=name} gave {hero} three more, so {hero} had {=k+3}.") },
    { NULL, NULL },
};
