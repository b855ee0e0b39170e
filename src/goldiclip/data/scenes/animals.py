"""Pictures of animals, in the drawing language of `vectors`.

A line is `paint primitive numbers` on a 100 × 100 sheet, y downwards, painted in order. `main` takes the thing's colour
and texture, `shade` and `tint` follow its colour, every other paint is fixed (`draw.PAINTS`).
"""

from __future__ import annotations

ANIMALS = {
    "cat": """
        main line 8 68 90 88 86 93 68 86 54
        main path M28 94 C22 66 34 48 50 48 C66 48 78 66 72 94 Z
        main poly 23 6 46 22 27 42
        main poly 77 6 54 22 73 42
        rose poly 28 15 40 24 30 33
        rose poly 72 15 60 24 70 33
        main ellipse 50 37 28 23
        white ellipse 39 35 7 7
        white ellipse 61 35 7 7
        ink circle 40 36 4
        ink circle 60 36 4
        rose poly 45 44 55 44 50 50
        ink line 2 41 53 45 56 50 52 55 56 59 53
        ink line 1.5 12 42 30 45
        ink line 1.5 88 42 70 45
        shade line 3 50 94 50 72
        tint ellipse 39 92 8 5
        tint ellipse 61 92 8 5
    """,
    "dog": """
        main line 8 80 50 90 40 94 26
        shade box 40 64 49 92 4
        shade box 64 64 73 92 4
        main box 26 42 86 72 15
        main box 29 60 39 94 4
        main box 75 60 85 94 4
        main path M8 40 C6 30 18 24 24 20 C34 12 48 20 48 34 C48 48 40 52 32 52 C22 54 10 50 8 40 Z
        shade path M38 18 C50 16 54 30 50 46 C46 52 38 46 38 36 Z
        ink ellipse 8 37 5 4
        white circle 25 30 4.5
        ink circle 24 30 2.8
        ink line 2 12 46 22 47
        gold circle 41 55 4
    """,
    "rabbit": """
        main ellipse 37 24 9 24 -6
        main ellipse 63 24 9 24 6
        rose ellipse 37 25 4 17 -6
        rose ellipse 63 25 4 17 6
        main ellipse 50 78 26 21
        main ellipse 50 53 23 20
        white circle 41 49 5
        white circle 59 49 5
        ink circle 42 50 3.4
        ink circle 58 50 3.4
        rose poly 46 57 54 57 50 61
        white box 46.5 63 53.5 70 1
        tint ellipse 50 83 14 13
        tint ellipse 36 95 11 5
        tint ellipse 64 95 11 5
    """,
    "fish": """
        shade path M40 32 C48 12 66 14 70 30 Z
        shade path M44 68 C50 84 62 86 64 68 Z
        main path M68 50 C80 40 88 26 98 24 C94 42 94 58 98 76 C88 74 80 60 68 50 Z
        main path M4 52 C14 28 50 20 76 50 C50 82 14 76 4 52 Z
        tint path M30 36 C38 44 38 60 30 69 C22 68 12 62 4 52 C12 42 22 37 30 36 Z
        white circle 21 47 6
        ink circle 20 47 3.4
        ink line 2 6 56 14 58
        shade path M44 50 C56 46 60 56 54 62 C50 60 46 56 44 50 Z
    """,
    "duck": """
        main path M10 58 C20 66 26 62 34 58 C30 50 28 46 28 36 C28 18 52 14 58 30 C62 40 58 48 62 54 C74 58 84 56 92
            46 C98 70 82 90 54 90 C26 90 8 80 10 58 Z
        main circle 43 30 18
        flame path M28 30 C18 28 8 32 6 38 C14 42 24 42 29 39 Z
        white circle 38 26 5
        ink circle 37 26 3
        shade path M44 64 C56 56 72 60 80 66 C74 80 52 82 44 64 Z
    """,
    "butterfly": """
        main path M48 48 C34 14 8 10 6 26 C4 44 24 52 48 50 Z
        main path M52 48 C66 14 92 10 94 26 C96 44 76 52 52 50 Z
        main path M48 52 C28 54 16 68 22 82 C34 92 46 74 49 56 Z
        main path M52 52 C72 54 84 68 78 82 C66 92 54 74 51 56 Z
        tint ellipse 24 32 7 8
        tint ellipse 76 32 7 8
        tint circle 33 72 5
        tint circle 67 72 5
        ink line 2 49 36 40 16
        ink line 2 51 36 60 16
        ink ellipse 50 56 4.5 24
    """,
    "snail": """
        sand path M6 88 C18 80 22 70 22 54 C22 44 36 44 37 54 C38 66 40 74 50 78 L88 80 C94 82 98 86 98 90 L8 92 Z
        sand line 4 26 52 20 34
        sand line 4 33 52 36 34
        ink circle 20 33 3.5
        ink circle 36 33 3.5
        main circle 63 54 31
        shade line 4 63 54 68 50 72 55 68 63 58 62 52 53 57 42 68 40 79 48 80 62 72 72
    """,
    "turtle": """
        moss path M62 70 C74 60 78 46 86 42 C96 40 100 52 94 60 C88 66 78 74 68 78 Z
        moss ellipse 26 80 9 10
        moss ellipse 62 80 9 10
        moss poly 12 68 2 78 16 78
        white circle 88 49 3.6
        ink circle 89 49 2.2
        main path M8 74 C8 36 26 22 44 22 C62 22 80 38 80 74 Z
        shade line 3 44 24 34 46 40 72
        shade line 3 34 46 12 54
        shade line 3 34 46 60 42 78 56
        shade line 3 60 42 58 72
        shade box 6 71 82 78 3
    """,
    "elephant": """
        shade box 42 66 53 92 4
        shade box 68 66 79 92 4
        main path M38 36 C60 26 90 34 92 58 C92 70 90 76 86 78 L40 78 Z
        main line 3 90 50 96 66
        main box 32 62 44 94 4
        main box 78 62 90 94 4
        main circle 32 40 23
        main line 12 16 46 12 64 11 80 4 86
        white path M20 60 C18 70 10 72 6 68 C12 66 12 62 14 58 Z
        shade path M36 20 C56 14 64 36 54 52 C46 60 36 52 36 42 Z
        white circle 22 36 4
        ink circle 21 36 2.6
    """,
    "owl": """
        main poly 20 8 46 22 24 34
        main poly 80 8 54 22 76 34
        main path M50 16 C78 16 84 40 82 62 C80 84 66 94 50 94 C34 94 20 84 18 62 C16 40 22 16 50 16 Z
        shade path M18 54 C24 58 28 74 26 84 C18 78 14 66 18 54 Z
        shade path M82 54 C76 58 72 74 74 84 C82 78 86 66 82 54 Z
        tint ellipse 50 72 17 18
        white circle 36 38 14
        white circle 64 38 14
        ink circle 38 38 7
        ink circle 62 38 7
        white circle 40 36 2.2
        white circle 64 36 2.2
        gold poly 44 48 56 48 50 58
        gold ellipse 40 94 6 3.5
        gold ellipse 60 94 6 3.5
    """,
    "whale": """
        glass line 3.5 34 34 32 20 24 14
        glass line 3.5 34 34 36 20 44 14
        main path M74 62 C80 54 82 44 80 34 C72 34 66 28 66 22 C76 22 82 26 84 32 C86 26 92 22 100 24 C98 32 94 36 88
            38 C92 66 78 88 46 88 C16 88 2 74 4 58 C6 40 26 34 44 38 C58 42 64 56 74 62 Z
        white path M5 64 C20 74 48 74 60 82 C54 88 40 89 34 87 C14 86 6 74 5 64 Z
        white circle 20 56 4.5
        ink circle 20 56 2.8
        shade path M40 66 C48 64 54 72 52 80 C46 80 40 74 40 66 Z
    """,
    "penguin": """
        main path M22 46 C10 56 8 68 12 76 C18 74 24 66 26 58 Z
        main path M78 46 C90 56 92 68 88 76 C82 74 76 66 74 58 Z
        main path M50 4 C72 4 74 22 74 36 C82 56 82 92 50 92 C18 92 18 56 26 36 C26 22 28 4 50 4 Z
        white path M50 38 C68 38 70 60 68 72 C66 86 58 90 50 90 C42 90 34 86 32 72 C30 60 32 38 50 38 Z
        white ellipse 41 25 8 9
        white ellipse 59 25 8 9
        ink circle 43 26 3.8
        ink circle 57 26 3.8
        gold poly 42 32 58 32 50 42
        gold ellipse 37 93 11 4.5
        gold ellipse 63 93 11 4.5
    """,
    "snake": """
        main path M34 12 C10 22 10 56 34 58 C50 58 58 42 70 46 C76 52 66 62 56 68 C42 78 48 94 66 94 C78 94 88 92 96
            90 C94 84 90 82 86 81 C76 82 68 84 66 80 C64 74 88 66 86 48 C82 30 64 30 52 38 C42 44 36 46 32 42 C28 36
            32 28 42 22 Z
        scarlet line 2.5 50 14 62 12 68 7
        scarlet line 2.5 62 12 68 16
        main ellipse 38 16 16 12 -8
        white circle 41 12 4.6
        ink circle 42 12 2.7
    """,
    "crab": """
        main line 5 28 66 8 66 3 80
        main line 5 30 74 14 78 11 91
        main line 5 72 66 92 66 97 80
        main line 5 70 74 86 78 89 91
        main line 6 28 56 14 44 15 34
        main line 6 72 56 86 44 85 34
        main path M16 38 C2 30 6 10 20 10 L18 24 L30 14 C34 26 28 36 16 38 Z
        main path M84 38 C98 30 94 10 80 10 L82 24 L70 14 C66 26 72 36 84 38 Z
        main line 3.5 42 52 40 38
        main line 3.5 58 52 60 38
        white circle 40 36 6.5
        white circle 60 36 6.5
        ink circle 41 36 3.4
        ink circle 59 36 3.4
        main ellipse 50 64 28 20
        ink line 2.5 40 70 50 75 60 70
    """,
    "beetle": """
        ink line 4 30 44 10 34
        ink line 4 26 62 6 64
        ink line 4 32 78 14 92
        ink line 4 70 44 90 34
        ink line 4 74 62 94 64
        ink line 4 68 78 86 92
        ink line 2.5 44 16 34 3
        ink line 2.5 56 16 66 3
        ink ellipse 50 25 17 15
        white circle 43 20 3.5
        white circle 57 20 3.5
        main ellipse 50 62 29 33
        shade line 3.5 50 31 50 94
    """,
    "giraffe": """
        main line 3.5 78 58 90 72
        shade box 46 66 53 96 3
        shade box 66 66 73 96 3
        main path M36 62 C30 40 28 26 24 12 L38 10 C42 28 46 46 56 50 C72 50 82 54 80 70 C70 76 46 78 38 72 Z
        main box 38 64 45 97 3
        main box 72 62 79 97 3
        main path M4 20 C6 12 20 4 32 4 C40 6 42 16 36 20 C26 26 14 28 8 27 Z
        shade line 3 28 6 26 -1
        shade line 3 34 6 35 -1
        shade ellipse 42 9 6 3.5 -20
        white circle 24 12 3.4
        ink circle 23 12 2.1
        ink line 1.8 8 22 16 22
    """,
    "octopus": """
        main line 8 34 62 20 70 8 64 4 74
        main line 8 38 66 28 82 14 84 12 94
        main line 8 46 68 42 86 34 94
        main line 8 66 62 80 70 92 64 96 74
        main line 8 62 66 72 82 86 84 88 94
        main line 8 54 68 58 86 66 94
        main path M50 4 C78 4 84 28 76 46 C72 56 74 72 50 72 C26 72 28 56 24 46 C16 28 22 4 50 4 Z
        white ellipse 40 42 8 9
        white ellipse 60 42 8 9
        ink circle 41 44 4.4
        ink circle 59 44 4.4
        ink line 2.5 42 58 50 62 58 58
    """,
    "pig": """
        main poly 18 10 44 22 22 42
        main poly 82 10 56 22 78 42
        main circle 50 54 40
        rose poly 24 17 36 24 26 33
        rose poly 76 17 64 24 74 33
        white circle 34 44 6.5
        white circle 66 44 6.5
        ink circle 35 45 3.8
        ink circle 65 45 3.8
        rose ellipse 50 64 18 13
        ink ellipse 43 64 3.5 5
        ink ellipse 57 64 3.5 5
        ink line 2.5 40 83 50 86 60 83
    """,
}
