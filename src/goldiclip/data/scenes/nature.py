"""Pictures of what grows and of the weather, in the drawing language of `vectors`."""

from __future__ import annotations

PLANTS = {
    "tree": """
        wood path M44 98 C46 82 46 70 44 56 L56 56 C54 70 54 82 57 98 Z
        main path M50 4 C64 2 72 12 72 20 C86 20 94 34 86 46 C90 60 76 70 64 66 C56 74 44 74 36 66 C24 70 10 60 14
            46 C6 34 14 20 28 20 C28 12 36 2 50 4 Z
        shade path M20 54 C34 62 66 62 82 52 C84 62 74 69 64 66 C56 74 44 74 36 66 C28 68 20 64 20 54 Z
    """,
    "fir tree": """
        wood box 43 82 57 98
        main poly 50 44 90 86 10 86
        shade poly 18 78 82 78 90 86 10 86
        main poly 50 24 82 62 18 62
        shade poly 25 55 75 55 82 62 18 62
        main poly 50 2 74 40 26 40
        shade poly 32 33 68 33 74 40 26 40
    """,
    "palm tree": """
        wood path M40 98 C46 76 48 56 45 38 L54 37 C58 58 56 78 54 98 Z
        main path M50 36 C40 18 22 14 8 24 C24 22 34 28 50 38 Z
        main path M50 36 C36 28 14 34 6 54 C22 42 34 40 50 40 Z
        main path M50 36 C60 18 78 14 92 24 C76 22 66 28 50 38 Z
        main path M50 36 C64 28 86 34 94 54 C78 42 66 40 50 40 Z
        main path M49 37 C44 20 48 8 58 2 C56 14 58 24 54 38 Z
        main path M46 38 C36 44 32 56 34 68 C40 54 46 48 52 42 Z
        main path M52 38 C64 44 68 56 66 68 C60 54 54 48 50 42 Z
        wood circle 46 41 5
        wood circle 55 42 5
    """,
    "flower": """
        leaf line 5 50 50 50 97
        leaf path M50 86 C36 84 26 76 24 66 C38 66 48 74 50 86 Z
        leaf path M50 80 C62 78 72 70 74 60 C62 60 52 68 50 80 Z
        main circle 50 15 13
        main circle 69 26 13
        main circle 69 47 13
        main circle 50 57 13
        main circle 31 47 13
        main circle 31 26 13
        gold circle 50 36 13
        flame circle 50 36 7
    """,
    "tulip": """
        leaf line 5 50 44 50 98
        leaf path M49 96 C30 88 24 70 26 56 C40 62 50 78 51 96 Z
        leaf path M51 96 C70 88 76 70 74 56 C60 62 50 78 49 96 Z
        main path M24 8 C32 12 38 18 40 24 C42 16 46 8 50 3 C54 8 58 16 60 24 C62 18 68 12 76 8 C80 32 76 54 50 54
            C24 54 20 32 24 8 Z
        shade path M50 3 C60 20 62 38 50 53 C38 38 40 20 50 3 Z
    """,
    "cactus": """
        main line 14 22 36 22 52 28 58 44 60
        main line 14 78 26 78 44 72 50 56 52
        main box 38 4 62 86 12
        shade line 2.5 46 14 46 80
        shade line 2.5 54 14 54 80
        rose circle 50 5 5
        clay poly 26 76 74 76 68 98 32 98
        wood box 22 72 78 80 2
    """,
    "leaf": """
        main path M12 88 C2 44 30 8 92 8 C96 66 62 98 22 82 Z
        shade line 3.5 6 96 30 70 76 24
        shade line 2.5 36 63 36 42
        shade line 2.5 50 49 50 28
        shade line 2.5 36 64 58 66
        shade line 2.5 50 50 72 50
    """,
}

FOOD = {
    "mushroom": """
        cream path M38 50 C40 70 36 84 32 92 C42 98 58 98 68 92 C64 84 60 70 62 50 Z
        main path M4 54 C6 22 30 6 50 6 C70 6 94 22 96 54 C80 62 20 62 4 54 Z
        white circle 32 32 7
        white circle 56 22 7
        white circle 72 42 7
        white circle 50 46 5
    """,
    "apple": """
        wood line 5 50 32 54 8
        leaf path M54 20 Q66 0 86 10 Q74 28 54 20 Z
        main path M50 30 C70 14 98 26 92 58 C88 82 68 100 50 92 C32 100 12 82 8 58 C2 26 30 14 50 30 Z
        tint ellipse 27 48 6 12 15
    """,
    "banana": """
        main path M14 18 C12 58 38 88 84 86 C92 85 94 78 88 74 C60 72 36 50 26 16 Z
        shade path M17 40 C28 66 52 82 86 80 C92 81 90 86 84 86 C44 88 20 66 17 40 Z
        wood box 13 8 26 20 2
        wood ellipse 90 80 4 6
    """,
    "pear": """
        wood line 5 50 16 54 3
        leaf path M54 12 Q66 0 78 6 Q70 18 54 12 Z
        main path M50 12 C64 12 66 26 68 38 C72 50 86 56 86 72 C86 88 70 97 50 97 C30 97 14 88 14 72 C14 56 28 50 32
            38 C34 26 36 12 50 12 Z
        tint ellipse 29 70 6 12 15
    """,
    "cherry": """
        wood line 4 28 62 42 34 66 8
        wood line 4 72 68 70 40 66 8
        leaf path M66 10 C76 0 92 2 98 14 C86 24 72 22 66 10 Z
        main circle 27 74 22
        main circle 73 78 20
        tint ellipse 20 68 4 7 20
        tint ellipse 67 72 4 6 20
    """,
    "strawberry": """
        main path M50 96 C30 88 10 58 14 36 C18 20 82 20 86 36 C90 58 70 88 50 96 Z
        cream ellipse 32 44 2.4 4
        cream ellipse 50 40 2.4 4
        cream ellipse 68 44 2.4 4
        cream ellipse 40 58 2.4 4
        cream ellipse 60 58 2.4 4
        cream ellipse 50 74 2.4 4
        leaf poly 50 32 36 36 34 26 16 26 34 16 44 18 50 4 56 18 66 16 84 26 66 26 64 36
    """,
    "carrot": """
        leaf path M46 30 C30 22 26 10 28 2 C40 6 48 16 50 30 Z
        leaf path M54 30 C70 22 74 10 72 2 C60 6 52 16 50 30 Z
        leaf path M50 30 C42 18 44 8 50 0 C56 8 58 18 50 30 Z
        main path M28 30 C36 22 64 22 72 30 C74 50 60 84 50 98 C40 84 26 50 28 30 Z
        shade line 3 30 44 42 46
        shade line 3 68 56 56 58
        shade line 3 38 68 48 70
    """,
    "cupcake": """
        gold poly 20 56 80 56 70 96 30 96
        wood line 3 36 60 39 94
        wood line 3 50 60 50 94
        wood line 3 64 60 61 94
        main path M14 58 C4 48 12 36 24 36 C24 24 34 20 40 22 C42 12 58 12 60 22 C68 20 76 24 76 36 C88 36 96 48 86 58 Z
        shade path M24 36 C40 46 62 46 76 36 C70 50 32 50 24 36 Z
        scarlet circle 50 10 8
    """,
    "ice cream": """
        wafer poly 26 46 74 46 50 98
        wood line 2 38 48 56 84
        wood line 2 56 48 64 68
        wood line 2 62 48 44 84
        wood line 2 44 48 36 68
        main path M22 50 C14 50 14 40 20 38 C16 16 34 4 50 4 C66 4 84 16 80 38 C86 40 86 50 78 50 C72 56 66 48 60 52
            C54 58 46 58 40 52 C34 48 28 56 22 50 Z
        tint ellipse 36 22 6 9 25
    """,
    "pumpkin": """
        wood path M44 28 C42 16 46 10 56 4 L62 10 C54 14 54 20 56 28 Z
        shade ellipse 26 60 22 32
        shade ellipse 74 60 22 32
        main ellipse 50 60 24 35
        main ellipse 33 60 20 33
        main ellipse 67 60 20 33
        main ellipse 50 60 17 35
        shade line 2.5 37 32 33 60 38 90
        shade line 2.5 63 32 67 60 62 90
    """,
    "pineapple": """
        leaf poly 50 36 34 8 48 20 50 0 52 20 66 8
        leaf poly 50 38 20 18 42 26 50 36 58 26 80 18
        main ellipse 50 66 26 32
        shade line 2.5 30 50 62 96
        shade line 2.5 44 38 74 80
        shade line 2.5 26 66 46 96
        shade line 2.5 70 50 38 96
        shade line 2.5 56 38 26 80
        shade line 2.5 74 66 54 96
    """,
}

SKY = {
    "sun": """
        main poly 50 0 57 16 70 5 72 22 90 19 83 35 100 40 86 50 100 60 83 65 90 81 72 78 70 95 57 84 50 100 43 84 30
            95 28 78 10 81 17 65 0 60 14 50 0 40 17 35 10 19 28 22 30 5 43 16
        tint circle 50 50 29
        main circle 50 50 26
        ink circle 41 45 3
        ink circle 59 45 3
        ink line 2.5 40 56 50 61 60 56
    """,
    "moon": """
        main path M62 4 C30 6 10 28 12 54 C14 82 40 98 66 94 C80 92 88 84 92 76 C66 82 46 66 44 44 C43 28 50 12 62 4 Z
        shade circle 26 56 5
        shade circle 38 76 4
        shade circle 36 34 3.5
    """,
    "cloud": """
        main path M22 78 C4 78 0 58 16 52 C12 36 28 28 38 34 C42 16 70 16 74 36 C88 32 98 46 90 56 C100 64 94 78 80 78 Z
        tint ellipse 42 44 9 5 -20
        shade path M12 70 C34 76 66 76 92 70 C88 76 84 78 80 78 L22 78 C16 78 13 74 12 70 Z
    """,
    "snowflake": """
        main line 7 50 3 50 97
        main line 7 9 26 91 74
        main line 7 9 74 91 26
        main line 5 36 10 50 22 64 10
        main line 5 36 90 50 78 64 90
        main line 5 8 44 24 36 20 18
        main line 5 92 44 76 36 80 18
        main line 5 8 56 24 64 20 82
        main line 5 92 56 76 64 80 82
    """,
    "raindrop": """
        main path M50 2 C58 26 84 46 84 68 C84 88 68 98 50 98 C32 98 16 88 16 68 C16 46 42 26 50 2 Z
        tint path M28 66 C28 78 36 86 46 88 C40 92 24 84 24 68 Z
    """,
    "lightning bolt": """
        main poly 58 0 18 56 44 56 30 100 84 36 54 38 76 0
    """,
}
