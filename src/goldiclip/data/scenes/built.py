"""Pictures of vehicles, buildings, figures and things of many shapes, in the drawing language of `vectors`."""

from __future__ import annotations

VEHICLES = {
    "car": """
        main path M4 70 C4 56 10 52 22 50 C30 34 36 28 48 28 L62 28 C72 28 78 38 84 50 C94 52 97 58 97 70 L94 76 L6 76 Z
        glass path M30 50 C35 38 40 34 48 34 L50 34 L50 50 Z
        glass path M55 34 L61 34 C68 34 72 42 76 50 L55 50 Z
        ink circle 26 76 12
        metal circle 26 76 5.5
        ink circle 76 76 12
        metal circle 76 76 5.5
        gold ellipse 94 60 3 4
        shade line 2.5 53 54 53 70
    """,
    "truck": """
        main box 2 20 62 74 3
        shade path M62 36 L80 36 C86 36 90 44 96 54 L98 74 L62 74 Z
        glass path M68 42 L79 42 C83 44 86 50 88 56 L68 56 Z
        ink box 2 72 98 78 2
        ink circle 20 78 12
        metal circle 20 78 5.5
        ink circle 78 78 12
        metal circle 78 78 5.5
        ink circle 46 78 12
        metal circle 46 78 5.5
    """,
    "bus": """
        main box 2 22 98 78 8
        glass box 8 30 24 50 3
        glass box 28 30 44 50 3
        glass box 48 30 64 50 3
        white box 70 30 84 74 2
        glass box 72 32 82 52 2
        glass box 88 30 98 52 3
        shade box 2 58 68 63
        ink circle 22 80 11
        metal circle 22 80 5
        ink circle 60 80 11
        metal circle 60 80 5
    """,
    "train": """
        main box 8 22 44 76 3
        glass box 16 30 36 48 2
        shade box 4 16 48 24 3
        main box 42 42 92 76 8
        shade box 74 22 86 44
        ink box 71 16 89 24 2
        main circle 58 42 8
        gold circle 92 56 5
        ink box 4 74 96 79 2
        scarlet poly 92 78 100 92 84 92
        ink circle 24 82 12
        metal circle 24 82 5
        ink circle 54 84 9
        metal circle 54 84 4
        ink circle 76 84 9
        metal circle 76 84 4
    """,
    "sailboat": """
        wood box 46 4 51 74
        main path M54 6 C78 26 88 44 90 64 L54 64 Z
        tint path M43 14 C34 36 22 52 8 64 L43 64 Z
        shade path M4 70 L96 70 C90 86 82 94 74 94 L26 94 C16 94 8 84 4 70 Z
        white line 3 10 78 91 78
    """,
    "airplane": """
        shade path M58 44 L40 10 L50 10 L80 44 Z
        main path M8 22 L18 20 L32 42 L80 40 C92 40 99 46 99 51 C99 57 92 60 80 60 L26 60 C18 60 14 56 12 48 Z
        shade path M50 54 L66 54 L38 90 L28 90 Z
        glass path M84 44 L92 45 C95 47 96 48 96 50 L85 50 Z
        glass circle 44 48 3
        glass circle 54 48 3
        glass circle 64 48 3
        glass circle 74 48 3
    """,
    "rocket": """
        flame path M38 78 C36 90 44 94 50 100 C56 94 64 90 62 78 Z
        gold path M44 78 C43 86 47 90 50 93 C53 90 57 86 56 78 Z
        shade path M32 50 C18 58 14 70 16 84 L36 74 Z
        shade path M68 50 C82 58 86 70 84 84 L64 74 Z
        main path M50 0 C70 18 74 44 66 80 L34 80 C26 44 30 18 50 0 Z
        white circle 50 36 11
        glass circle 50 36 7.5
        shade box 34 70 66 77
    """,
    "bicycle": """
        ink circle 21 66 21
        hole circle 21 66 16
        ink circle 79 66 21
        hole circle 79 66 16
        main line 6 21 66 38 34 70 34 46 68 21 66
        main line 6 46 68 36 28
        main line 6 79 66 66 24
        ink line 6 28 26 44 26
        ink line 6 66 24 78 20
        ink circle 46 68 6
    """,
    "hot-air balloon": """
        wood line 2.5 34 62 42 84
        wood line 2.5 66 62 58 84
        main path M50 2 C80 2 92 26 84 44 C78 56 66 62 62 70 L38 70 C34 62 22 56 16 44 C8 26 20 2 50 2 Z
        shade path M50 2 C40 14 38 54 44 70 L56 70 C62 54 60 14 50 2 Z
        wicker box 38 82 62 99 3
        wood line 3 38 88 62 88
    """,
    "tractor": """
        main box 46 42 94 68 4
        main box 16 34 50 68 3
        ink line 5 20 10 20 38
        ink line 5 48 10 48 38
        shade box 12 6 54 14 3
        glass box 24 16 45 34
        ink line 4.5 82 44 82 24
        ink circle 28 70 25
        gold circle 28 70 14
        ink circle 28 70 4
        ink circle 80 80 15
        gold circle 80 80 8
    """,
}

BUILDINGS = {
    "house": """
        metal box 68 10 80 36
        main box 14 44 86 96
        shade poly 50 4 98 48 2 48
        wood box 42 64 60 96
        glass box 20 56 36 72
        glass box 66 56 80 72
        gold circle 56 81 2.5
    """,
    "castle": """
        main box 24 40 76 96
        main box 4 24 30 96
        main box 70 24 96 96
        main box 4 14 11 28
        main box 14 14 20 28
        main box 23 14 30 28
        main box 70 14 77 28
        main box 80 14 86 28
        main box 89 14 96 28
        main box 36 32 44 44
        main box 56 32 64 44
        ink path M38 96 L38 72 C38 58 62 58 62 72 L62 96 Z
        ink box 14 42 20 56 3
        ink box 80 42 86 56 3
        shade line 3 24 96 30 40
        shade line 3 76 96 70 40
    """,
    "lighthouse": """
        moss path M6 98 C14 88 34 84 50 84 C66 84 86 88 94 98 Z
        main poly 38 32 62 32 70 92 30 92
        white poly 36 48 64 48 66 62 34 62
        gold box 39 16 61 32
        ink line 2.5 50 16 50 32
        shade box 32 29 68 35 2
        scarlet path M34 17 C38 6 62 6 66 17 Z
        ink box 45 78 55 92 4
    """,
    "tent": """
        main poly 50 8 98 92 2 92
        shade poly 50 8 98 92 74 92
        ink poly 50 36 66 92 34 92
        tint poly 50 36 40 92 28 92
        wood line 3.5 50 10 50 2
    """,
    "windmill": """
        main poly 38 40 62 40 72 98 28 98
        shade path M36 42 C38 28 62 28 64 42 Z
        ink box 44 78 56 98 5
        cream poly 50 38 46 2 60 4 54 36
        cream poly 50 40 86 32 88 46 52 44
        cream poly 48 40 54 76 40 76 46 44
        cream poly 50 36 14 46 12 32 48 34
        ink circle 50 39 5
    """,
}

FIGURES = {
    "circle": "main circle 50 50 46",
    "triangle": "main poly 50 4 98 90 2 90",
    "star": "main poly 50 2 62 37 98 37 69 59 80 94 50 73 20 94 31 59 2 37 38 37",
    "heart": "main path M50 94 C20 70 2 52 4 30 C6 10 36 2 50 26 C64 2 94 10 96 30 C98 52 80 70 50 94 Z",
    "ring": """
        main circle 50 50 47
        hole circle 50 50 25
    """,
    "cross": "main poly 34 3 66 3 66 34 97 34 97 66 66 66 66 97 34 97 34 66 3 66 3 34 34 34",
    "arrow": "main poly 3 36 52 36 52 10 98 50 52 90 52 64 3 64",
}

# Things that come in many shapes: `shape` stands for whichever one the thing has.
SHAPED = {
    "clock": """
        main shape 50 50 49
        white shape 50 50 34
        ink line 5 50 52 50 32
        ink line 4 50 52 64 60
        ink circle 50 52 4.5
    """,
    "sign": """
        metal box 45 60 55 99
        main shape 50 38 38
        white shape 50 38 30
        main shape 50 38 25
    """,
    "window": """
        main shape 50 50 49
        glass shape 50 50 38
        white line 4 30 44 44 30
        main bars 50 50 44 6
    """,
    "cushion": """
        shade shape 50 50 49
        main shape 50 50 43
        shade circle 50 50 5
    """,
    "plate": """
        main shape 50 50 49
        shade shape 50 50 34
        tint shape 50 50 31
    """,
    "mirror": """
        main shape 50 50 49
        gold shape 50 50 39
        glass shape 50 50 36
        white line 5 36 54 52 36
        white line 3 46 60 62 42
    """,
    "cookie": """
        main shape 50 50 49
        wood circle 36 40 5
        wood circle 58 34 5
        wood circle 46 58 5
        wood circle 64 56 5
    """,
    "button": """
        shade shape 50 50 49
        main shape 50 50 42
        ink circle 42 42 5
        ink circle 58 42 5
        ink circle 42 58 5
        ink circle 58 58 5
    """,
    "badge": """
        shade poly 34 60 24 99 38 92 46 99 52 66
        shade poly 66 60 76 99 62 92 54 99 48 66
        main shape 50 40 40
        gold shape 50 40 26
        main circle 50 40 10
    """,
    "lollipop": """
        cream box 46 60 54 99 2
        main shape 50 38 38
        tint circle 50 36 13
        main circle 50 36 8
    """,
}
