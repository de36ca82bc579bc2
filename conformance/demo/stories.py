"""A grammar of short stories: the only training text of the demo model.

A story is a plot with a cast. The cast (characters, place, things) is drawn first and
stays the same for the whole story, so that names, pronouns, things and places agree
from the first sentence to the last. A plot is a list of beats. A beat is a tuple of
alternative texts, or a string if there is only one. In every text

    {slot}    is filled from the cast,
    [a|b|c]   is one of a, b, c (brackets do not nest).

The same seed gives the same stories on every machine: only random.Random is used.
"""

import random
import re

GIRLS = """Ada Anna Bella Clara Ella Emma Flora Grace Hazel Ivy Jane Lily Lucy Luna Maya Mia
Mira Molly Nina Nora Ruby Sara Sofia Zoe""".split()
BOYS = """Adam Ben Bruno Carl David Eli Felix Finn Hugo Jack Leo Liam Max Milo Noah Oliver
Oscar Otto Paul Peter Sam Theo Tim Tom""".split()
assert not set(GIRLS) & set(BOYS)

# The kinds of characters, and where each kind lives. None: a girl or a boy.
KINDS = {
    None: "in a [small|cosy|little] cottage",
    "fox": "in a warm den",
    "rabbit": "in a soft burrow",
    "bear": "in a cosy cave",
    "mouse": "in a tiny hole under an old tree",
    "squirrel": "in a hollow tree",
    "hedgehog": "under a pile of golden leaves",
    "otter": "in a den under the roots of a willow",
    "badger": "in a deep and quiet den",
    "kitten": "in a basket by the fire",
    "duckling": "in a nest of dry reeds",
}
TRAITS = "kind brave shy curious clever gentle cheerful quiet patient playful".split()

# Places: the phrase, what the hero does there every day, spots to search.
PLACES = [
    ("in a small village by the sea",
     ["Every morning {he} watched the boats go out.", "{He} loved the sound of the waves.",
      "{He} knew the name of every boat in the harbour."],
     ["under the old pier", "behind the fishing boats", "between the wet rocks", "on the white beach", "beside the lighthouse"]),
    ("in a quiet forest",
     ["{He} knew every path between the trees.", "{He} loved the smell of moss and rain.",
      "Every day {he} listened to the birds."],
     ["under the green ferns", "behind the old oak", "inside the hollow log", "beside the little stream", "among the mushrooms"]),
    ("in a village high in the mountains",
     ["From {his} window {he} could see the whole valley.", "{He} loved the cold, clear air.",
      "Every evening {he} watched the clouds turn pink."],
     ["behind the big rock", "near the waterfall", "under the pine trees", "on the narrow path", "beside the goat shed"]),
    ("at the edge of a wide green meadow",
     ["{He} loved to run through the flowers.", "Every day {he} counted the butterflies.",
      "On warm days {he} lay in the grass and looked at the sky."],
     ["in the tall grass", "behind the stone wall", "under the apple tree", "beside the pond", "among the yellow flowers"]),
    ("in a little town by the river",
     ["{He} loved to watch the water go by.", "Every day {he} said hello to the ferryman.",
      "{He} could skip a stone across the whole river."],
     ["under the wooden bridge", "beside the water mill", "among the reeds", "behind the bakery", "near the market square"]),
    ("on an old farm",
     ["Every morning {he} said hello to the hens.", "{He} loved the smell of fresh hay.",
      "{He} woke up early, even before the rooster."],
     ["inside the red barn", "behind the haystack", "beside the well", "under the old cart", "among the cabbages"]),
    ("on a tiny island",
     ["{He} could walk around the whole island before lunch.", "Every day {he} looked for shells.",
      "At night {he} fell asleep to the song of the sea."],
     ["under the tall palm tree", "inside the dark cave", "beside the blue lagoon", "behind the sand hill", "among the seashells"]),
    ("in a valley full of snow",
     ["{He} loved the quiet of the winter mornings.", "Every day {he} made new tracks in the snow.",
      "{He} could tell every kind of snow by its sound."],
     ["behind the snowy hill", "under the frozen trees", "beside the icy lake", "near the old sledge", "inside the snow house"]),
]

# Things to love: color or material, noun, use, sound or light at night.
THINGS = [
    ("red", "kite", "{He} flew it on every windy day.", None),
    ("silver", "bell", "{He} rang it every morning.", "rang the bell"),
    ("blue", "scarf", "{He} wore it in sun and in rain.", None),
    ("wooden", "flute", "{He} played it every evening.", "played the flute"),
    ("golden", "key", "{He} wore it on a string around {his} neck.", None),
    ("paper", "boat", "{He} let it sail wherever there was water.", None),
    ("green", "ball", "{He} threw it high and caught it again.", None),
    ("little", "lantern", "{He} lit it every night before bed.", "held up the lantern"),
    ("round", "drum", "{He} beat it when {he} was happy.", "beat the drum"),
    ("brass", "horn", "{He} blew it when supper was ready.", "blew the horn"),
    ("yellow", "hat", "{He} wore it even in {his} sleep.", None),
    ("old", "book", "{He} read it again and again.", None),
]
HELPERS = ["owl", "turtle", "crow", "heron", "toad", "goat", "donkey", "snail"]
ELDERS = [("grandmother", "she", "her", "her"), ("grandfather", "he", "his", "him"),
          ("mother", "she", "her", "her"), ("father", "he", "his", "him"),
          ("aunt", "she", "her", "her"), ("uncle", "he", "his", "him")]
FOODS = ["honey cake", "apple pie", "plum cake", "cherry pie", "loaf of warm bread", "berry tart"]
BIRDS = ["sparrow", "robin", "swallow", "lark", "dove"]
PLANTS = [("sunflower", "yellow"), ("rose", "red"), ("tulip", "pink"), ("snowdrop", "white"), ("bluebell", "blue")]
TREASURES = ["blue jar", "tall clock", "painted plate", "glass lamp", "white teapot"]
GIANTS = ["giant", "dragon", "troll"]
SEASONS = ["spring", "summer", "autumn", "winter"]

# Fears: of what, how it shows, what the helper says, how it ends, what the hero learns.
FEARS = [
    ("the dark", "Every night {he} hid under {his} blanket.",
     "The dark is only the day asleep", "{He} took one step outside, and then another. Above {him} were a thousand stars.",
     "there is always some light in the dark"),
    ("thunder", "When the clouds came, {he} ran home and closed {his} eyes.",
     "Thunder is only the sky clapping its hands", "{He} stood at the window and clapped back. The rain danced on the roof.",
     "a loud voice is not always an angry one"),
    ("deep water", "{He} would not even put one foot in the lake.",
     "The water will carry you if you let it", "{He} lay back and spread {his} arms. The water held {him} up like a soft bed.",
     "trust can carry you a long way"),
    ("high places", "{He} would not even climb onto a chair.",
     "Do not look down, look at the next step", "{He} climbed the hill one step at a time. From the top {he} saw the whole world.",
     "a big climb is made of small steps"),
    ("meeting others", "When someone said hello, {he} looked at {his} feet.",
     "A smile is a door, and you have the key", "{He} looked up and smiled. Everyone smiled back.",
     "a small hello can be the start of a friendship"),
]

OPENINGS = (
    "Once upon a time, {in_place}, there lived {a_hero} named {hero}.",
    "Once upon a time, there was {a_hero} named {hero}. {He} lived {at_home} {in_place}.",
    "Once upon a time, there was {a_hero} named {hero} who lived {in_place}.",
    "Once upon a time, {a_hero} named {hero} lived {in_place}.",
    "Long ago, {in_place}, there lived {a_hero} named {hero}.",
    "There once was {a_hero} named {hero}. {He} lived {at_home} {in_place}.",
    "{In_place} lived {a_hero} named {hero}.",
    "{hero} was {a_hero} who lived {at_home} {in_place}.",
)
END = "\n\n"  # a beat that ends a paragraph

PLOTS = {
    "lost": [
        "{hero} had {a_thing}, a gift from {his} {elder}. {use}", END,
        ("One {season} [morning|day|evening], the {noun} was gone.",
         "But one [morning|day|evening] {he} could not find the {noun}.",
         "Then, one windy [morning|day], {he} lost the {noun}."),
        ("{hero} was very sad.", "{His} heart felt heavy.", "{His} eyes filled with tears."),
        "{He} looked {spot1}, but it was not there. {He} looked {spot2}, but it was not there either.",
        ("Then {he} met {a_helper}.", "On the way home {he} met {a_helper}."),
        ('"Have you seen my {noun}?" [asked {hero}|{hero} asked].', '"I have lost my {noun}," [said {hero}|{hero} said].'),
        ('"I saw {a_thing} {spot3}," said the {helper}. "[Come with me|Follow me|Let us go together]."',
         '"Did you look {spot3}?" asked the {helper}. "[Come with me|Let us look together]."'), END,
        ("They went together, and there was the {noun}, {spot3}!",
         "They looked {spot3}, and there it was, the {colour} {noun}!"),
        ("{hero} laughed and jumped for joy.", "{hero} held it close and smiled."),
        ('"Thank you," {he} said to the {helper}.', '"Thank you, dear friend," {he} said.'),
        "From that day on, {hero} [knew|never forgot] that [it is good to ask for help|a problem is smaller when it is shared|two can find what one cannot].",
    ],
    "storm": [
        "{habit} {friend_intro}",
        "{hero} also had {a_light}, and {he} took it everywhere.", END,
        ("One {season} evening, a great storm came.", "One night, a wild storm came."),
        ("The wind howled and the rain fell like stones.", "The sky turned black and the wind began to roar."),
        ('"Where is {friend}?" asked {hero}. Nobody knew.', "{friend} had gone out that day and had not come home."),
        ("{hero} was afraid, but {he} thought of {friend} alone in the storm.",
         "{hero} wanted to hide, but {he} could not leave a friend alone."), END,
        "So {he} went out into the wind. {He} stood {spot1} and {signal}. Nobody came. {He} stood {spot2} and {signal} again and again.",
        ('At last {he} heard a small voice. "I am here!" cried {friend}.', 'Then a voice called through the rain. "{hero}! I am here!"'),
        ("{friend} had followed {it_light} all the way.", "{friend} had lost the way, but {it_light} had shown it again."),
        "They held hands and walked home together.", END,
        ("When the sun came up, the storm was over.", "In the morning the sky was blue again."),
        '"You saved me," said {friend}. "You would do the same for me," said {hero}.',
        "And [so it was|that was true]. A [good|true] friend is [a light in the storm|never far away|worth more than gold].",
    ],
    "fear": [
        "{habit}",
        "But {hero} was afraid of {fear}. {fear_sign}", END,
        ("One day {he} met {a_helper}.", "One {season} day {he} told {a_helper} about it."),
        ('"Why are you so sad?" asked the {helper}. "I am afraid of {fear}," said {hero}.',
         '"I wish I was brave," said {hero}. "But I am afraid of {fear}."'),
        'The {helper} [smiled|nodded|thought for a while]. "{fear_word}," [it said|said the {helper}]. "[Try|Go and see], and I will be with you."',
        ("The first time, {hero} ran away.", "At first {hero} could not do it."),
        ("The second time, {he} stayed a little longer.", "The next day {he} tried again, and it was a little better."), END,
        "Then, on the third day, {hero} took a deep breath. {fear_win}",
        ('"I did it!" {he} [cried|shouted|laughed].', '"Look at me!" {he} [cried|shouted|laughed].'),
        ('"I knew you could," said the {helper}.', 'The {helper} was very proud.'),
        "And {hero} learned that {fear_moral}.",
    ],
    "share": [
        "{friend_intro} They did everything together.", END,
        ("One {season} day they found {a_food} {spot1}.", "One day {his} {elder} gave them {a_food}."),
        ('"It is mine!" said {hero}. "No, it is mine!" said {friend}.',
         '"I want all of it," said {hero}. "But I want it too," said {friend}.'),
        ("They pulled and they pushed, and the {food_noun} fell to the ground.",
         "They shouted so loudly that the birds flew away."),
        ("{friend} went home and did not look back.", "Then {friend} began to cry and ran away."),
        ("{hero} sat alone {spot2}. [The day was long and quiet.|It was no fun to be alone.]",), END,
        ("That night {hero} could not sleep.", "After a while {hero} felt sorry."),
        "In the morning {he} made {a_new_food} and took it to {friend}.",
        ('"I am sorry," said {hero}. "[Half of this is for you|You can have the biggest part]."',),
        ('"I am sorry too," said {friend}. "[Let us eat it together|Let us share it]."',),
        "So they sat {spot2} and ate, and [it was the best {new_food_noun} in the world|nothing had ever tasted so good].",
        "From then on they shared everything, for [what you share tastes twice as good|a friend is worth more than {a_food}].",
    ],
    "wing": [
        "{habit}", END,
        ("One {season} [morning|day], {hero} found a small {bird} {spot1}.",
         "One cold [morning|day], {hero} heard a soft cry. It was a small {bird}, {spot1}."),
        ("Its wing was hurt, and it could not fly.", "It had hurt its wing and could not fly home."),
        ('"Do not be afraid," said {hero}. "I will take care of you."', '"Poor little {bird}," said {hero}. "You can stay with me."'),
        "{He} carried it home and made a bed of [soft moss|warm wool|dry leaves]. Every day {he} brought it [water and seeds|bread and water], and every night {he} sang to it.", END,
        ("Slowly the wing grew strong.", "Day by day, the {bird} grew stronger."),
        ("Then one morning the {bird} spread its wings and flew up into the sky.",
         "One morning the {bird} hopped to the window, looked at {hero}, and flew away."),
        ("{hero} was happy and sad at the same time.", '"Goodbye, little {bird}," said {hero}, and waved.'), END,
        ("When the next {season} came, {hero} heard a song at the window.", "A year went by. Then there was a song at the window."),
        "The {bird} had come back, and it had brought {a_plant} seed as a gift.",
        "{hero} planted the seed {spot2}, and soon there was {a_colour_plant} for everyone to see.",
        "Kindness is like that. [It always comes back|It flies away and comes home again|The more you give, the more it grows].",
    ],
    "seed": [
        "One day {his} {elder} gave {him} a tiny seed. \"[Take good care of it|Plant it and wait],\" {eshe} said.",
        "{hero} planted it {spot1} and gave it water.", END,
        ("The next morning {he} ran to look. There was nothing but earth.", "The next day {he} looked, but nothing had changed."),
        ('"Grow!" said {hero}. But the seed did not grow.', '"Why does it not grow?" asked {hero}. "Give it time," said {his} {elder}.'),
        ("After a week there was still nothing.", "A week went by, and still there was nothing."),
        '"[It will never grow|It is only a stone]," laughed {friend} the {fkind}.',
        "But {hero} did not give up. {He} brought water when it was dry. {He} [kept the snails away|pulled out the weeds|told it stories] every evening.", END,
        ("Then, one bright morning, there was a small green leaf.", "Then, after a night of rain, a green leaf looked out of the earth."),
        ("It grew and grew, until it was taller than {hero}.", "Day by day it grew, up and up, to the sun."),
        "And at last it opened into the most beautiful {colour_plant} {in_place_end}.",
        '"[I was wrong|How beautiful]," said {friend}. "[How did you do it|What is your secret]?"',
        '"I waited," said {hero}. Good things [take time|come to those who wait|grow slowly].',
    ],
    "star": [
        "Every night {he} looked up at the stars before {he} fell asleep.", END,
        ("One {season} night, a little star fell from the sky.", "One night, there was a flash of light. A little star had fallen from the sky."),
        "{hero} found it {spot1}. It was small and [bright|warm], and it was crying.",
        '"I want to go home," said the star. "[Do not cry|Do not worry]," said {hero}. "I will help you."', END,
        ("First {he} climbed the tallest tree and held the star up high. It was not high enough.",
         "First {he} threw the star as high as {he} could. It fell down again."),
        ("Then {he} climbed onto the roof. It was still not high enough.",
         "Then {he} tied the star to a kite. The string was too short."),
        'At last {he} asked {a_helper}. "[What lifts you up when you are sad|How do you fly without wings]?" said the {helper}. "[A song|A song, of course]," said {hero}.',
        "So {hero} sang [the best song {he} knew|the song of {his} {elder}], and the star grew lighter and lighter, until it rose into the sky.", END,
        ("Every night since then, one star shines a little brighter over {hero}'s home.",
         "And if you look up tonight, you will see one star that winks. That is {hero}'s star."),
        "For [no one is too small to help|a song can go where nothing else can|a kind heart can reach the sky].",
    ],
    "bridge": [
        "{habit} {friend_intro}",
        ("{friend} lived on the other side of a deep river.", "Only a small bridge led to the house of {friend}, over a deep river."), END,
        ("One {season} night, the water rose and took the bridge away.", "After days of rain, the bridge broke and fell into the river."),
        ("{hero} stood on one side, and {friend} stood on the other.", "{hero} could see {friend} wave, but {he} could not go across."),
        ("First {hero} put a long branch over the water. It broke in two.", "First {hero} threw stones into the water. They sank."),
        ("Then {he} built a raft. The river carried it away.", "Then {he} tried to jump. {He} only got wet."),
        '"I cannot do it alone," {he} said.', END,
        "So {he} asked everyone for help. The {helper} brought [rope|wood], the {helper2} brought [nails|planks], and {his} {elder} brought soup for all.",
        ("They worked [from morning to night|for three days].",),
        "And when they were done, there was a new bridge, and it was stronger than the old one.",
        ('{hero} ran across and hugged {friend}. "I missed you," {he} said.', '{friend} ran across and hugged {hero}. "I missed you," said {friend}.'),
        "[Many hands make a strong bridge|What is too hard for one is easy for many|Together we can cross any river].",
    ],
    "truth": [
        "{His} {elder} had {a_treasure}, and {eshe} loved it very much.", END,
        ("One {season} day, {hero} was playing inside with a [ball|hoop|kite].", "One rainy day, {hero} was dancing around the room."),
        "There was a loud crash. The {treasure} lay on the floor in a hundred pieces.",
        ("{hero} was so afraid that {he} hid the pieces {spot1}.", "{hero} did not know what to do. {He} hid the pieces {spot1}."),
        'That evening {his} {elder} asked, "Where is my {treasure}?" "I do not know," said {hero}.',
        ("But {his} supper did not taste good, and {his} bed did not feel warm.", "But the words felt like a stone in {his} heart."), END,
        ("In the middle of the night {he} got up.", "In the morning {he} got up early."),
        '{He} went to {his} {elder}. "I broke it," {he} said. "I am sorry."',
        "{His} {elder} was quiet for a moment. Then {eshe} [smiled|took {hero} by the hand].",
        '"The {treasure} was dear to me," {eshe} said, "but you are dearer. [Thank you for telling me|It was brave to tell the truth]."',
        "Together they glued the pieces, one by one. It was [not as pretty as before|full of cracks], but they both loved it more.",
        "[The truth is hard to say, but it makes the heart light|A true word can mend what is broken].",
    ],
    "gift": [
        "{He} loved {his} {elder} more than anyone.", END,
        ("Soon it was {his} {elder}'s birthday. {hero} wanted to make a gift.", '"Tomorrow is your {elder}\'s birthday," said {friend} the {fkind}. {hero} had no gift.'),
        ("First {he} baked {a_food}, but it burned.", "First {he} baked {a_food}, but it was hard as a stone."),
        ("Then {he} painted a picture, but the rain washed it away.", "Then {he} made a hat of leaves, but the wind blew it away."),
        ("{hero} looked for a treasure {spot1}. {He} found only an old shoe.", "{hero} looked {spot1} for something pretty. {He} found only a grey stone."),
        '"I have nothing to give," {he} said to {a_helper}. "[You have yourself|Give what is in your heart]," said the {helper}.', END,
        "So when the day came, {hero} went to {his} {elder} with empty hands. {He} told {ehim} a story and [sang|danced] until it was dark.",
        '{elder_cap} [laughed|smiled] with tears in {ehis} eyes. "This is the best birthday of my life," {eshe} said.',
        "And {hero} learned that [the best gift is time|love needs no ribbon|a gift from the heart is never small].",
    ],
    "giant": [
        "{habit}", END,
        ("Every night there was a strange noise from the hill.", "One {season}, a deep sound came from the hill every night."),
        ('"It is a terrible {giant}," said {friend} the {fkind}. "[Stay away|Do not go there]!"', '"A {giant} lives there," said {his} {elder}. "Nobody goes there."'),
        "But {hero} listened and thought, [\"It sounds sad.\"|\"That is not an angry sound.\"]",
        ("So {he} took {a_light} and {a_food} and climbed the hill.", "So one evening {he} took {a_food} and went up the hill all alone."), END,
        "There sat a {giant}, as big as a house. It was crying.",
        ('"Why are you crying?" asked {hero}.', '"What is wrong?" asked {hero}.'),
        ('"Everyone runs away from me," said the {giant}. "I only want a friend."', '"I am all alone," said the {giant}. "Nobody will talk to me."'),
        ('"I did not run away," said {hero}. "[Sit with me|Eat with me]."', '"Then I will be your friend," said {hero}.'),
        "They shared the {food_noun} and talked until the moon was high.", END,
        ("The next day {hero} brought the {giant} home.", "In the morning they came down the hill hand in hand."),
        "At first everyone was afraid. But the {giant} [carried water|moved heavy stones|kept the wind away] and told funny stories, and soon [everyone loved it|it had many friends].",
        "You never know [a heart until you listen to it|who is kind until you say hello].",
    ],
    "race": [
        "{friend_intro} They both loved to run.", END,
        ("One {season} day there was a great race. The prize was {a_thing}.", "Every {season} there was a race, and the winner got {a_thing}."),
        '"[I will win|I am the fastest]," said {friend}. "[We will see|May the best one win]," said {hero}.',
        "They ran past the {helper}, past the {helper2}, and far away. {hero} was in front.",
        ("Then {he} heard a cry. {friend} had fallen.", 'Then {he} heard a voice. "Help!" cried {friend}. "I have hurt my leg."'),
        ("{hero} could see the end of the race. It was so near.", "{hero} looked at the prize, and then {he} looked back."),
        "{He} turned around and ran to {friend}. \"[Lean on me|Take my hand],\" {he} said.", END,
        ("They walked the rest of the way together, and they came in last.", "Slowly, step by step, they came to the end. They were the last."),
        "But everyone [stood up and clapped|cheered louder than for the winner].",
        'The {helper} gave them the {noun}. "[Anyone|Many] can be fast," said the {helper}. "Not everyone can be [kind|a friend]."',
        "So {hero} and {friend} shared the {noun}, and {hero} was [happier|prouder] than any winner. [A friend is the best prize|Kindness always wins].",
    ],
}


def article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def noun_of(food):
    """The noun for a food: "apple pie" is a pie, "loaf of warm bread" is a loaf."""
    words = food.split()
    return words[0] if "of" in words else words[-1]


def cast(rng):
    """Draws the cast of one story: a map from slot names to texts."""
    she, fshe = rng.random() < 0.5, rng.random() < 0.5
    hero = rng.choice(GIRLS if she else BOYS)
    friend = rng.choice([n for n in (GIRLS if fshe else BOYS) if n != hero])
    kind = None if rng.random() < 0.4 else rng.choice(list(KINDS)[1:])
    fkind = rng.choice([k for k in list(KINDS)[1:] if k != kind])
    who = kind or ("girl" if she else "boy")
    size = rng.choice(["little", "young", "little"])
    place, habits, spots = rng.choice(PLACES)
    spot1, spot2, spot3 = rng.sample(spots, 3)
    colour, noun, use, _ = rng.choice(THINGS)
    light_colour, light, _, signal = rng.choice([t for t in THINGS if t[3]])
    helper, helper2 = rng.sample(HELPERS, 2)
    elder, eshe, ehis, ehim = rng.choice(ELDERS)
    food, new_food = rng.sample(FOODS, 2)
    plant, plant_colour = rng.choice(PLANTS)
    treasure = rng.choice(TREASURES)
    fear, sign, word, win, moral = rng.choice(FEARS)
    he = "she" if she else "he"
    return {
        "hero": hero, "he": he, "He": he.capitalize(),
        "his": "her" if she else "his", "His": "Her" if she else "His", "him": "her" if she else "him",
        "a_hero": article(f"{rng.choice(TRAITS)} {size} {who}"),
        "at_home": KINDS[kind], "in_place": place, "In_place": place.capitalize(),
        "in_place_end": rng.choice(["anyone had ever seen", "of them all"]),
        "habit": rng.choice(habits), "spot1": spot1, "spot2": spot2, "spot3": spot3,
        "friend": friend, "fkind": fkind,
        "friend_intro": f"{{His}} best friend was {article(rng.choice(TRAITS))} {fkind} named {friend}.",
        "colour": colour, "noun": noun, "a_thing": article(f"{colour} {noun}"), "use": use,
        "a_light": article(f"{light_colour} {light}"), "signal": signal,
        "it_light": f"the {'light' if light == 'lantern' else 'sound'} of the {light}",
        "a_helper": article(f"{rng.choice(['wise', 'old', 'friendly', 'kind'])} {helper}"),
        "helper": helper, "helper2": helper2,
        "elder": elder, "elder_cap": f"{{His}} {elder}", "eshe": eshe, "ehis": ehis, "ehim": ehim,
        "a_food": article(food), "food_noun": noun_of(food), "a_new_food": article(new_food), "new_food_noun": noun_of(new_food),
        "bird": rng.choice(BIRDS), "a_plant": article(plant),
        "colour_plant": f"{plant_colour} {plant}", "a_colour_plant": article(f"{plant_colour} {plant}"),
        "treasure": treasure, "a_treasure": article(treasure),
        "giant": rng.choice(GIANTS),
        "fear": fear, "fear_sign": sign, "fear_word": word, "fear_win": win, "fear_moral": moral,
        "season": rng.choice(SEASONS),
    }


CHOICE = re.compile(r"\[([^][]*)\]")


def tell(rng, template, slots):
    """Fills one template. The text of a slot may contain slots and choices."""
    text = template
    while "{" in text or "[" in text:
        text = CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), text)
        text = text.format_map(slots)
    return text


def story(rng, plot=None):
    """One story as text, drawn from rng, with the named plot or a random one."""
    slots = cast(rng)
    beats = PLOTS[plot or rng.choice(list(PLOTS))]
    text, gap = tell(rng, rng.choice(OPENINGS), slots), " "
    for beat in beats:
        if beat is END:
            gap = END
            continue
        sentence = tell(rng, beat if isinstance(beat, str) else rng.choice(beat), slots)
        text, gap = text + gap + sentence, " "
    return text


def stories(seed):
    """An infinite stream of stories. Different seeds give independent streams."""
    rng = random.Random(seed)
    while True:
        yield story(rng)


if __name__ == "__main__":
    for name in PLOTS:
        print(f"({name}) {story(random.Random(name), name)}\n")
