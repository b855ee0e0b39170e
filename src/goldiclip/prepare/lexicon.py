"""The closed classes and everyday words the phrase chunker stands on: what English captions are built from.

Nouns are what is left over, so a noun is listed only where it looks like something else.
"""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


DETERMINERS = word_set(
    """
    a all an another any both certain countless couple dozen dozens each either enough every few first half her his
    hundreds its last many more most much multiple my neither next no numerous other others our same second several
    some such that the their these third this those thousands various what which whose your
    """
)
CARDINALS = word_set(
    """
    eight eighteen eleven fifteen fifty five forty four fourteen hundred million nine nineteen one seven seventeen
    six sixteen sixty ten thirteen thirty thousand three twelve twenty two
    """
)
# One to twelve, in order.
SMALL_NUMBERS = tuple("one two three four five six seven eight nine ten eleven twelve".split())  # noqa: SIM905
PRONOUNS = word_set(
    """
    anyone anything em everybody everyone everything he here hers herself him himself i it itself me mine myself
    nobody nothing oneself ours ourselves she somebody someone something theirs them themself themselves there they
    us we who whom you yours yourself
    """
)
RELATIVES = word_set(
    """
    although as because if since so that though unless until when where which while whilst who whom whose
    """
)
CONJUNCTIONS = word_set("& and but nor or plus yet")
PREPOSITIONS = word_set(
    """
    aboard about above across after against along alongside amid amidst among amongst around astride at atop before
    behind below beneath beside besides between beyond by despite down during except featuring for from in including
    inside into like near of off on onto opposite out outside over overlooking past per than through throughout till
    to toward towards under underneath unlike until up upon versus via vs with within without
    """
)
ADVERBS = word_set(
    """
    additionally afterwards again ahead airborne alike almost aloft alone along already also always apart aside away
    back backward backwards barefoot close downhill downstairs downward downwards else even everywhere far fast
    forth forward forwards furthermore hard high home however indoors instead inward just low maybe meanwhile
    mid-air midair moreover nearby nearly never not now offline often once online only outdoors outward overall
    overhead perhaps quite rather really respectively sideways sometimes somewhere soon still straight then
    therefore thus together too twice underwater up-close uphill upside upstairs upward upwards upwind usually very
    well
    """
)
INTENSIFIERS = word_set(
    """
    extremely fairly highly incredibly pretty quite rather really so somewhat too very
    """
)
AUXILIARIES = word_set(
    """
    am are aren't be been being can can't cannot could couldn't did didn't do does doesn't don't had has have having
    is isn't may might must shall should was wasn't were weren't will won't would wouldn't
    """
)

# Base forms. Those in NOUN_VERBS below are as often things as actions, and context decides.
VERBS = word_set(
    """
    accelerate accept accompany add adjust admire aim allow appear approach argue arrange arrive ask assemble assist
    attach attack attempt attend avoid await bare bask bathe be become beg begin believe belong bend bite blend blow
    board bounce bound bow brandish break breathe bring browse brush build burn burst bury buy call capture care
    carry carve cast catch celebrate change chase chat chatter cheer chew choose chop circle clap clasp clean clear
    climb cling clutch collect comb come compete complete compose conduct consist consume contain contemplate
    continue contrast converse cook cover crash crawl create cross crouch cry cuddle curl cut dance dangle dart dash
    decide decorate deliver demonstrate depict describe devour dig dine dip direct discuss display dive do dock
    dodge doing drag draw dress drift drink drive drop dry eat embark embrace emerge emit enclose encourage engage
    enjoy enter entertain escape evoke examine execute exercise exhibit exit explore extend face fall fasten feature
    feed feel fight fill film find finish fit fix flap flee flip float fly fold follow frame frolic gallop gather
    gaze get give glance glide gnaw go grab graze greet grill grin grip grow growl guard guide hang happen have head
    hear help herd hide highlight hike hit hold hop hug hunt hurdle hurl hurry illuminate include indicate inflate
    inspect instruct interact interview introduce jog join jostle juggle jump keep kick kiss kneel knit knock know
    land laugh launch lay lead lean leap learn leave let lick lie lift light like line listen load lock look lounge
    lower lunge make maneuver manoeuvre march meet merge mix mount move munch narrow navigate need observe occupy
    offer open operate overlook pack paddle paint parade park participate pass paw pay pedal peek peep peer perch
    perform pet pick pile pinch pitch place plant play point poke pose position pour practice practise prance
    prepare present press pretend produce protect protrude provide pull punch purchase pursue push put race raise
    reach read receive recline reflect relax release remain remove repair represent rest retrieve return reveal ride
    ring rise roam roll romp row rub run rush sail salute say scale scamper scatter score scream sculpt search see
    seem select sell separate serve shade shake share shave shine shoot shop shout shovel show showcase shower sing
    sip sit skate skateboard ski skip sled sleep slice slide slip slurp smell smile smoke snap sniff snorkel
    snowboard snuggle soar socialize solve speak speed spin splash sport spray spread sprinkle sprint squat squirt
    stack stand stare start stay steer step stick stir stop strain stretch stride stroke stroll struggle strum stuff
    style suggest support surf surround swerve swim swing tackle take talk taste tattoo tease tell tend throw tie
    tilt tip toss touch tow train transport travel trek tricks trim trot try tube tuck tumble turn twirl twist type
    use view visit wade wag wait walk wander want warm wash watch wave wear weave welcome whip whisper wield wink
    wipe wonder work wrap wrestle write yawn yell zoom
    """
)
# Verbs that are things as well: "the dog runs" and "a ski run", "she waves" and "a wave".
NOUN_VERBS = word_set(
    """
    bite board bounce bow brand brush burn cast catch change chat cheer circle climb comb cook cover crash cross cut
    dance design dip display dive dock dress drift drink drive drop exercise exit face fall feature feed fight fill
    film fit fix flip float fold frame glance grill grin grip guard guide help highlight hike hit hold hug hunt
    hurdle interview juggle jump kick kiss knot land laugh lead leap leave lift light line load lock look lounge
    march mix mount move offer pack paddle paint parade park pass paw paws pedal pet pick pile pitch place plan
    plant play plow point pose position pour present press pull punch push race raise reach rest return ride ring
    rise roll row run saddle sail salute scale scatter score scream search sell separate shade shadow shake share
    shine shoot shop shout shovel show shower sip skate skateboard ski skip sled sleep slice slide slip smell smile
    smoke snack snap snorkel snowboard speed spin splash sport spray spread sprint stack stage stain stand stare
    start step stick stir stop stream stretch string stroke stroll style support surf surround swim swing tackle
    talk taste tattoo tie tip top toss touch tow train travel trek trick trim trip trot try tube tumble turn twist
    type use view visit wag walk wash watch wave weight wheel whip whistle wink wonder work wrap wrestle yawn yell
    """
)
IRREGULAR = {
    "ate": "eat", "bent": "bend", "bitten": "bite", "blew": "blow", "blown": "blow", "bought": "buy",
    "broke": "break", "broken": "break", "brought": "bring", "built": "build", "came": "come", "caught": "catch",
    "clad": "dress", "doing": "do", "done": "do", "dove": "dive", "drawn": "draw", "dressing": "dress",
    "drew": "draw", "driven": "drive", "drove": "drive", "dug": "dig", "dying": "die", "eaten": "eat",
    "fallen": "fall", "fell": "fall", "felt": "feel", "flew": "fly", "flown": "fly", "fought": "fight",
    "found": "find", "gave": "give", "given": "give", "gone": "go", "got": "get", "gotten": "get", "grew": "grow",
    "grown": "grow", "held": "hold", "hid": "hide", "hidden": "hide", "hung": "hang", "kept": "keep",
    "knelt": "kneel", "laid": "lay", "lain": "lie", "lay": "lie", "laying": "lay", "led": "lead", "left": "leave",
    "lit": "light", "lying": "lie", "made": "make", "met": "meet", "paid": "pay", "ran": "run", "ridden": "ride",
    "rode": "ride", "rose": "rise", "said": "say", "sang": "sing", "sat": "sit", "saw": "see", "seen": "see",
    "set": "set", "sets": "set", "shook": "shake", "shot": "shoot", "shown": "show", "slept": "sleep", "spun": "spin",
    "stood": "stand", "stuck": "stick", "sung": "sing", "swam": "swim", "swung": "swing", "taken": "take",
    "threw": "throw", "thrown": "throw", "told": "tell", "took": "take", "tried": "try", "tries": "try",
    "tying": "tie", "went": "go", "wore": "wear", "worn": "wear", "wound": "wind", "wove": "weave", "woven": "weave",
    "written": "write", "wrote": "write",
}  # fmt: skip

# Things and places that end as an action does.
ING_NOUNS = word_set(
    """
    awning awnings bedding beijing belongings bling building buildings carving carvings ceiling ceilings clearing
    clothing covering coverings crossing crossings decking drawing drawings dressing duckling ducklings dumpling
    dumplings dwelling dwellings earring earrings engraving engravings evening fencing filling fillings flooring
    frosting furnishings gathering gatherings gosling goslings herring icing inning king kings landing lettering
    lighting lightning marking markings meeting morning netting offering offerings opening openings outcropping
    outing painting paintings paneling panelling paving piping pudding railing railings rigging ring rings roofing
    scaffolding seating setting settings shavings sibling siblings siding sling slings spring springs stocking
    stockings string strings surroundings thing things topping toppings tubing viking vikings wedding weddings wing
    wings wrapping
    """
)
# What an action names when it stands before one of these: "a swimming pool", "hiking boots".
ING_HEADS = word_set(
    """
    area areas bag bags ball balls bar bars bench bike bikes board boards boat boats boots cap car cars cart carts
    center centre chair chairs competition contest court deck district dock dress equipment event field game garage
    gear glove gloves goggles ground grounds gum hall harness helmet helmets jacket lift line lot lots machine
    machines mall mask match outfit outfits pan pants path platform pole poles pond pool pools post pot ramp ramps
    range ring rink rod rods room rooms rope ropes school shoes shorts space spoon stand station stick sticks store
    street suit suits table tables team tent track tracks trail trails trunks tub uniform uniforms utensils vest
    wall walls wheel
    """
)
# Nouns that end as a participle or an adjective does, and plurals that look like verbs.
ODD_NOUNS = word_set(
    """
    alley animal animals army artillery ashes attic babies baby bakery balcony bars bases battery bay beaches bed
    beds bees belly benches berries berry bicycle bikini bodies body boxes boy boys branches bread brushes bunny bus
    buses bushes butterflies butterfly cable cables cactus campus canal candle candy canopy carnival cars cases
    cattle cemetery cherries cherry chicken children chimney churches circus cities city clay cleric clinic clothes
    coaches company cosmic couches country cowboy cowboys crops daisy deer dishes donkey donkeys doorway dragon
    driveway enemy entry fabric factory fairy families family feet ferry festival fish foxes gallery garden gardens
    geese glasses goggles grass groceries grocery guy guys hallway highway hockey horses hoses hospital houses ivy
    jeans jelly jersey jerseys jewellery jewelry key keys kids kitchen kitchens kitten kittens knees ladies lady
    leaves lemon library lilies lily lobby machinery magic medal medals melon men mic mice money monkey monkeys
    mosaic motorcycle music navy noses nurses octopus oven ovens overalls oxen pajamas pants parties party pastry
    pathway paws penny people petal petals picnic plastic police ponies pony pottery puppies puppy purses pyjamas
    railway reed reeds ribbon rocks roses rugby runway scenery scissors screen screens seed seeds shed sheds sheep
    shorts skies skis sky sled sleds spaces spots stable stairs stairway story stripes subway sunglasses table
    tables tattoos teddy teeth terminal thread tights token torches toy toys traffic tray trays trees trolley trophy
    trousers turkey valley vases vegetable vegetables vehicle wagon wagons walkway weed weeds women woods
    """
)
COLOURS = word_set(
    """
    aqua beige black blond blonde blue bright bronze brown brunette burgundy colorful colourful copper cream crimson
    cyan dark gold golden gray green grey ivory khaki lavender light lime magenta maroon multi-colored multicolored
    multicoloured navy olive orange pale peach pink purple red rose scarlet silver tan teal turquoise violet white
    yellow
    """
)
ADJECTIVES = COLOURS | word_set(
    """
    abstract active adjacent adult aerial african afro alert alive alpine amateur american ancient angry antique
    aquatic arabic asian asleep athletic attractive awake bad baggy bald bare bare-chested bearded beautiful big
    bitter blank blind blurry bold bored bottom brick brief british broad bulky business busy calm candid carved
    casual casually catholic caucasian ceramic cheap cheerful chilly chinese christian chubby circular civilian
    classic clean clear close closed cloudy cluttered coastal cold comfortable common competitive complex concrete
    cool cosy cozy crazy crescent crisp curious curly cute damp dead deep dense desert different dim dirty distant
    domestic double dry dual dull dusty early eastern elaborate elderly electric electronic elegant empty enormous
    equestrian european evident exotic expensive extra false famous fancy far-off fat female fierce fine firm
    flamboyant flat floral fluffy flying foamy foggy folk foreign formal free french fresh friendly frilly front
    frosty frozen full funny furry fuzzy general gentle german giant gigantic glassy glossy good grand grassy gravel
    great half half-naked handsome happy hard harsh healthy heavy hefty high hispanic historic hollow holy homeless
    homemade hooded horizontal hot huge human humid hungry icy identical illuminated impressive indian indoor
    industrial inflatable inner innocent intense intent interesting intricate islamic italian japanese jewish jolly
    joyful juicy junior kind korean lacy large late lavish lazy leafless leafy lean left leftmost lengthy little
    live lively local lone lonely long loose loud lovely low lower lush luxurious mad main major male many married
    massive matching mean medieval medium mellow merry messy metallic mexican mid middle middle-aged mild military
    mini miniature minor misty mixed modern moist moving muddy multi multiple muscular musical muzzled mysterious
    naked narrow native natural nautical neat new nice noble noisy normal northern notable nude numerous oblong
    oceanic odd old older oldest only open ornamental ornate outdoor outer outstretched oval overcast overgrown
    overhead partial peaceful pebbled picturesque plaid plain playful pleasant plump pointy polite poor popular
    portable pouring pregnant pretty previous prominent proper proud pure quaint quick quiet rainy random rapid rare
    raw ready real rear rectangular red-headed regular religious residential rich ripe rocky romantic rough round
    royal rural russian rustic rusty sad safe salty same sandy scary scenic scruffy secluded senior serene serious
    shady shaggy shallow sharp sheer shiny shirtless shoeless short short-haired shy sick silly simple single skimpy
    skinny sleek sleepy slender slick slight slim slippery slow small smart smoky smooth snow-covered snowy soapy
    soft soggy solar sole solid solitary sour southern spacious spanish sparse special spherical spicy spiky
    spotless square stark steady steep stern still stony stormy strange striking strong stuffed stunning sturdy
    stylish suburban sudden sunlit sunny super surprised sweet swift talented tall tame tart teenage tender terraced
    thai thick thin thirsty tight tinted tiny tired top topless torn tough traditional tranquil translucent
    transparent triangular tropical turbulent twin typical ugly unfinished unhappy uniformed unique upper urban
    vacant various vast verdant vertical vibrant victorian vintage visible vivid warm wary wavy wealthy weathered
    western wet white-haired whole wide wild windy winter wise wooded wooden woolen woollen worn wrinkly yellowish
    young younger youngest youthful
    """
)
# Participles that make an adjective together with the noun before them: "a snow covered hill", "a long sleeved shirt".
COMPOUND_PARTICIPLES = word_set(
    """
    based capped clad colored coloured covered decorated eyed faced filled framed haired headed infested knit legged
    lined lit made patterned paved powered printed ridden shaped sized sleeved sponsored strewn style styled tailed
    themed tipped topped trimmed
    """
)
# Heads that name no object: a place in the picture, a quality, a time, an act, the picture itself.
ABSTRACT = word_set(
    """
    action activities activity addition afternoon air amount angle another anticipation appearance area areas
    arrangement aspect atmosphere attempt attention autumn back backflip background balance beauty bit bite blend
    bottom break cartwheel case center centre charm color colors colour colours combination competition
    composition context contrast control conversation corner craftsmanship dawn day daylight days depiction depth
    design detail details direction directions display distance dive dusk edge effect effort elegance element
    elements emphasis end enjoyment environment evening event example excitement experience fact feeling focus
    foreground front frown fun game games glance grip half handstand height help hold hour hug image images
    importance impression indoors inside interest job joy jump kind kinds kiss leap left leisure length life
    lifestyle line look looks lot lots love majority memories memory mid mid-air midair middle minutes mix moment
    moments mood morning motion movement music nature night nights noon nothing number one ones opportunity order
    other others outdoors outside pace pair part parts pattern peace performance perspective
    photo photograph photographs photos picture pictures piece pieces place places play pose position possession
    practice preparation presence presentation purpose quality race relaxation rest ride right role row rows run
    scene season sense series set sets setting settings shape shot side sides size skill skills smile somersault
    something somewhere song songs sort speed spring story stunt stunts style summer sunshine surroundings swim
    symmetry tandem texture theme themes thing things time times tone top touch trick tricks turn type types unison
    upside use vacation variety vicinity view views walk warmth way ways weather weekend width winter work year
    years
    """
)
# Measures whose object is what follows "of": "a group of people" is about people.
QUANTITIES = word_set(
    """
    abundance amount array assortment bit body bunch cluster clusters collection combination couple couples crew
    depiction dozen dozens duo flock gang group groups handful herd host hundreds image kind kinds layer layers line
    lines lot lots majority mix mixture multitude number pack packs painting pair pairs part parts party patch
    patches photo photograph picture piece pieces pile piles plenty range rest row rows scene selection series set
    sets sheet sheets shot sort stack stacks stretch team thousands trio type types variety view
    """
)
# The same heads are objects once a noun says which: "picnic area", "finish line".
CONCRETE_WHEN_NAMED = word_set(
    """
    area areas break corner corners display edge end game games image jump light line lines lot lots part parts
    photo photograph photographs picture pictures piece pieces range row run set shot side top tops work
    """
)
# Adjectives that stand for a thing when nothing follows them.
NOMINAL_ADJECTIVES = word_set(
    """
    adult african antique asian blond blonde brick brunette concrete cream female foam gravel junior light male
    native senior square teenage top
    """
)
# Plurals without an s, and words for many.
PLURALS = word_set(
    """
    audience band cattle children couple crowd deer family feet fish geese group kids men pair people police sheep
    team women
    """
)
# These take an object, so the noun after them is it: "wearing trunks", never a kind of trunks.
TRANSITIVE_ING = word_set(
    """
    bringing carrying catching chasing crossing eating entering facing grabbing having hitting holding kicking
    leaving making pulling pushing riding showing taking throwing touching using watching wearing
    """
)
# Places that an adjective is enough to name: "grassy area".
PLACES = word_set("area areas")
# Sports, when they are what is played.
SPORTS = word_set(
    """
    badminton baseball basketball cards catch chess cricket football frisbee golf hockey lacrosse polo rugby soccer
    tennis volleyball
    """
)
