from tarif.affichage import texte
from tarif.größe import Größe, preis
from tarif.lecture import carte

__all__ = ["Größe", "carte", "preis", "texte"]
